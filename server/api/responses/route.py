"""POST /v1/responses, and /v1/responses/input_tokens: a conversation in, the next response out."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...answer.sse import encode_json
from ...chat.prompt import prompt_ids
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.text import LONG_TEXT
from ...request.unknown_fields import check_unknown_fields
from ...schema.errors import GENERATION_ERRORS
from ...schema.responses import CountInputRequest, ResponsesRequest
from ...schema.responses_answer import InputTokenCount, ResponseObject
from ...service import Service
from ..generation import Wire
from ..keeping import keep
from ..respond import respond
from .answer import ResponseAnswer
from .fields import check_prompt_fields
from .generation import responses_generation
from .history import WIRE, with_history
from .turn import read_turn

RESPONSES = Wire(WIRE, ResponsesRequest, responses_generation, has_prompt=False)


def responses_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["responses"], route_class=JsonRoute)

    @router.post(
        "/v1/responses",
        response_model=ResponseObject,
        response_model_exclude_unset=True,
        responses={
            200: {"description": "The response; with `stream: true`, its events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_response(body: ResponsesRequest, request: Request) -> Response:
        waiter = Waiter.of(request)
        check_prompt_fields(body)
        body, waiter = await with_history(service, body, waiter)
        if body.background and not body.stream and service.kept.keeps(body.store):
            return await _queued(service, body, waiter)
        return await respond(service, RESPONSES, body, waiter)

    @router.post(
        "/v1/responses/input_tokens",
        response_model=InputTokenCount,
        response_model_exclude_unset=True,
        responses=GENERATION_ERRORS,
    )
    async def count_input_tokens(body: CountInputRequest, request: Request) -> Response:
        waiter = Waiter.of(request)
        check_prompt_fields(body)
        warnings = await service.large_bodies.run(
            lambda: check_unknown_fields(body, body.prompt_parts(), strict=False), waiter.n_body
        )
        chosen = service.serving(body.model or None)
        body, waiter = await with_history(chosen, body, waiter)
        turn, _, more = await service.large_bodies.run(
            lambda: read_turn(body, n_body=waiter.n_body), waiter.n_body, inline_below=LONG_TEXT
        )
        warnings += more
        n_tokens = len(await prompt_ids(chosen, turn))
        said: dict[str, Any] = {"object": "response.input_tokens", "input_tokens": n_tokens}
        if warnings:
            said["warnings"] = warnings
        return Response(encode_json(said), media_type="application/json")

    return router


async def _queued(service: Service, body: ResponsesRequest, waiter: Waiter) -> Response:
    """The answer to a request whose response nobody waits for."""
    generation = await responses_generation(service, body, waiter)
    await keep(service, RESPONSES, body, generation, waiter)
    answer = generation.answer
    assert isinstance(answer, ResponseAnswer), "it is that of this wire"
    said = {**answer.begun(None), "status": "queued"}
    return Response(encode_json(said), media_type="application/json")
