"""GET and DELETE of a stored response, its events from any one on, its input, and its end."""

import json
import zlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from ...answer.sse import PING, EventStream, encode_json
from ...errors import RequestError, StreamCancelledError
from ...http.json_body import JsonRoute
from ...kept.kept import Kept
from ...lease.waiter import attended
from ...request.sampling import sampling_settings
from ...schema.errors import error_responses
from ...schema.responses import ResponsesRequest
from ...schema.responses_answer import InputItemList, ResponseDeleted, ResponseObject
from ...service import Service
from ..keeping import or_error
from ..paging import After, Limit, Order, page
from ..streams.overrides import stored_fields, validated
from .history import input_items, stored_response, unpacked_length
from .response import described

_ERRORS = error_responses(400, 401, 403, 404, 421)
_PATH = "/v1/responses/{response_id}"
_STREAM = {"text/event-stream": {"schema": {"type": "string"}}}


def stored_response_routes(service: Service) -> APIRouter:
    """The routes, over the kept streams."""
    router = APIRouter(tags=["stored responses"], route_class=JsonRoute)

    @router.get(
        _PATH,
        response_model=ResponseObject,
        response_model_exclude_unset=True,
        responses={
            200: {
                "description": "The response; with `stream=true`, its events.",
                "content": _STREAM,
            },
            **_ERRORS,
        },
    )
    async def get_response(
        response_id: str,
        request: Request,
        stream: Annotated[bool, Query(description="Its events, as they come.")] = False,
        starting_after: Annotated[
            int | None,
            Query(ge=0, description="With `stream`: the number of the last event that is known."),
        ] = None,
    ) -> Response:
        """A stored response, as far as it is, or its events from one on."""
        kept = stored_response(service, _caller(request), response_id)
        if starting_after is not None and not stream:
            raise RequestError("starting_after needs stream=true", param="starting_after")
        if not stream:
            return _answer(await _shown(service, kept))
        after = 0 if starting_after is None else starting_after + 1
        if after > kept.log.n_events:
            raise RequestError(
                f"starting_after must be below {kept.log.n_events}, the number of events so far, "
                f"not {starting_after}",
                param="starting_after",
            )
        return EventStream(or_error(_events(service, kept, after), kept))

    @router.delete(_PATH, response_model=ResponseDeleted, responses=_ERRORS)
    async def delete_response(response_id: str, request: Request) -> dict[str, Any]:
        """Forget a stored response; one that runs ends."""
        service.kept.delete(stored_response(service, _caller(request), response_id))
        return {"id": response_id, "object": "response", "deleted": True}

    @router.post(
        f"{_PATH}/cancel",
        response_model=ResponseObject,
        response_model_exclude_unset=True,
        responses=_ERRORS,
    )
    async def cancel_response(response_id: str, request: Request) -> Response:
        """End a response that is queued or runs, and answer it as far as it came. One that has
        ended stays as it is.
        """
        kept = stored_response(service, _caller(request), response_id)
        kept.cancel(StreamCancelledError("the response was cancelled"))
        await attended(kept.log.whole(), request.receive)
        return _answer(await _shown(service, kept))

    @router.get(f"{_PATH}/input_items", response_model=InputItemList, responses=_ERRORS)
    async def list_input_items(
        response_id: str,
        request: Request,
        limit: Limit = 20,
        after: After = None,
        order: Order = "desc",
    ) -> dict[str, Any]:
        """What a stored response answers: the whole conversation before it."""
        kept = stored_response(service, _caller(request), response_id)
        items = await service.large_bodies.run(lambda: input_items(kept), unpacked_length(kept))
        return page(
            items,
            id_of=lambda item: str(item["id"]),
            shown=lambda item: item,
            limit=limit,
            after=after,
            order=order,
        )

    return router


async def _shown(service: Service, kept: Kept) -> bytes:
    """The response as it is now."""
    if kept.whole:
        return zlib.decompress(kept.whole)
    last = _last_response(kept) if kept.ended else None
    if last is not None:
        return encode_json(last)
    waits = kept.state(kept.streams[0]) == "queued"
    status = "cancelled" if kept.ended else "queued" if waits else "in_progress"
    return await service.large_bodies.run(
        lambda: encode_json(_begun(service, kept, status)), unpacked_length(kept)
    )


def _begun(service: Service, kept: Kept, status: str) -> dict[str, Any]:
    """A response without output, from its request."""
    request = kept.request
    engine = service.of_engine(request.fingerprint).engine
    body = validated(ResponsesRequest, stored_fields(kept))
    settings = sampling_settings(
        body,
        engine.default_settings,
        vocab_size=engine.config.vocab_size,
        eos_token_ids=engine.eos_token_ids,
    )
    head = {"id": kept.id, "created": request.created, "model": request.model}
    return described(body, settings, head, status=status)


def _last_response(kept: Kept) -> dict[str, Any] | None:
    """What the last event of one that failed says; None if it is of another shape."""
    events = kept.log.page(kept.log.n_events - 1) if kept.log.n_events else []
    for event in events:
        said = json.loads(event.partition(b"data: ")[2])
        response = said.get("response")
        return response if isinstance(response, dict) else None
    return None


async def _events(service: Service, kept: Kept, after: int) -> AsyncIterator[bytes]:
    ping = service.settings.ping_interval
    async for frames in kept.log.read(after=after, idle=ping):
        yield frames or PING


def _answer(said: bytes) -> Response:
    return Response(said, media_type="application/json")


def _caller(request: Request) -> str:
    return str(request.scope["state"]["caller"])
