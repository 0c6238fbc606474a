"""POST under /v1/streams/{id}: branch, peek, control, replay. Owns the paths; knows no wire."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...answer.sse import encode_long_json
from ...errors import RequestError, StreamNotFoundError, StreamStateError
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter, attended
from ...request.unknown_fields import refuse_unknown_fields
from ...schema.control import (
    BranchRequest,
    ChatControlled,
    Controlled,
    ControlRequest,
    Peek,
    PeekRequest,
    Replay,
)
from ...schema.errors import GENERATION_ERRORS, error_responses
from ...service import Service
from ..generation import Wire
from ..keeping import respond_kept
from .branch import branch
from .control import control_of
from .found import found_stream
from .going_on import go_on
from .looks import peek, replay

_ERRORS = {**GENERATION_ERRORS, **error_responses(409)}
_ANSWERED: dict[str, Any] = {
    "description": "The answer, as the stream's route gives it; with `stream: true`, its events.",
    "content": {
        "application/json": {
            "schema": {
                "oneOf": [
                    {"$ref": "#/components/schemas/Completion"},
                    {"$ref": "#/components/schemas/ChatCompletion"},
                ]
            }
        },
        "text/event-stream": {"schema": {"type": "string"}},
    },
}
_PATH = "/v1/streams/{stream_id}"


def acting_routes(service: Service, wires: Mapping[str, Wire]) -> APIRouter:
    """The routes, over the kept streams. `wires`: by name."""
    router = APIRouter(tags=["streams"], route_class=JsonRoute)

    @router.post(f"{_PATH}/branch", response_model=None, responses={200: _ANSWERED, **_ERRORS})
    async def branch_stream(stream_id: str, body: BranchRequest, request: Request) -> Response:
        """A new stream that begins as this one and goes on differently, answered as its route
        does; it is kept too.
        """
        waiter = Waiter.of(request)
        kept, stream = found_stream(service, waiter.key, stream_id)
        wire = wires[kept.request.wire]
        own = service.of_engine(kept.request.fingerprint)
        new = await branch(own, wire, (kept, stream), body, waiter)
        return await respond_kept(service, new, waiter, is_stream=bool(body.stream))

    @router.post(f"{_PATH}/peek", response_model=Peek, responses=_ERRORS)
    async def peek_stream(stream_id: str, body: PeekRequest, request: Request) -> Response:
        """Where each of several next tokens would lead. The stream stays as it is."""
        refuse_unknown_fields(body)
        waiter = Waiter.of(request)
        kept, stream = found_stream(service, waiter.key, stream_id)
        own = service.of_engine(kept.request.fingerprint)
        return _json(await peek(own, kept, stream, body, waiter))

    @router.post(f"{_PATH}/replay", response_model=Replay, responses=_ERRORS)
    async def replay_stream(stream_id: str, request: Request) -> Response:
        """Generate the stream again from what was recorded, and compare."""
        waiter = Waiter.of(request)
        kept, stream = found_stream(service, waiter.key, stream_id)
        own = service.of_engine(kept.request.fingerprint)
        return _json(await replay(own, kept, stream, waiter))

    async def control(stream_id: str, body: ControlRequest, request: Request) -> dict[str, Any]:
        refuse_unknown_fields(body)
        waiter = Waiter.of(request)
        kept, stream = found_stream(service, waiter.key, stream_id)
        kept.check_waiting(stream)
        wire = wires[kept.request.wire]
        own = service.of_engine(kept.request.fingerprint)
        wanted = control_of(own, wire, kept, body)
        await go_on(own, wire, kept, waiter)
        event, number = await kept.control(stream, wanted, waiter.receive)
        if kept.state(stream) == "paused":
            await attended(service.kept.written(kept), waiter.receive)
        return {
            "id": stream.id,
            "object": "stream.control",
            "action": event.kind,
            "completion_tokens": event.n_tokens,
            "event": number,
            "state": kept.state(stream),
        }

    @router.post(f"{_PATH}/control", response_model=Controlled, responses=_ERRORS)
    async def control_stream(
        stream_id: str, body: ControlRequest, request: Request
    ) -> dict[str, Any]:
        """Do something with the stream before its next token."""
        return await control(stream_id, body, request)

    @router.post(
        "/v1/chat/completions/control",
        response_model=ChatControlled,
        response_model_exclude_unset=True,
        responses=_ERRORS,
    )
    async def control_chat(body: ControlRequest, request: Request) -> dict[str, Any]:
        """The same by llama-server's name: `id` is in the body. Its own action, `reasoning_end`, is
        not an error for a stream that has ended or is not known: `success` says so.
        """
        if body.id is None:
            raise RequestError("id is missing: it names the stream", param="id")
        try:
            return {"success": True, **await control(body.id, body, request)}
        except (StreamNotFoundError, StreamStateError) as error:
            if body.action != "reasoning_end":
                raise
            return {"success": False, "message": str(error)}

    return router


def _json(value: dict[str, Any]) -> Response:
    return Response(encode_long_json(value), media_type="application/json")
