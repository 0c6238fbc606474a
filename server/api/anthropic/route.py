"""POST /v1/messages, and /v1/messages/count_tokens: a conversation in, the next message out."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...answer.sse import encode_json
from ...chat.prompt import prompt_ids
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.unknown_fields import check_unknown_fields
from ...schema.anthropic import CountRequest, MessagesRequest
from ...schema.anthropic_answer import AnthropicAnswer, TokenCount
from ...schema.errors import ANTHROPIC_ERRORS
from ...service import Service
from ..generation import Wire
from ..respond import respond
from .generation import messages_generation, read_turn, served_for

MESSAGES = Wire("messages", MessagesRequest, messages_generation, has_prompt=False)


def anthropic_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/v1/messages",
        response_model=AnthropicAnswer,
        responses={
            200: {"description": "The message; with `stream: true`, its events."},
            **ANTHROPIC_ERRORS,
        },
    )
    async def create_message(body: MessagesRequest, request: Request) -> Response:
        return await respond(service, MESSAGES, body, Waiter.of(request))

    @router.post(
        "/v1/messages/count_tokens",
        response_model=TokenCount,
        response_model_exclude_unset=True,
        responses=ANTHROPIC_ERRORS,
    )
    async def count_message_tokens(body: CountRequest, request: Request) -> Response:
        n_body = request.state.n_body
        warnings = await service.large_bodies.run(
            lambda: check_unknown_fields(body, body.message_parts(), strict=False), n_body
        )
        chosen, more = served_for(service, body.model, strict=False)
        warnings += more
        turn, more = await read_turn(chosen, body, n_body=n_body, strict=False)
        warnings += more
        said: dict[str, Any] = {"input_tokens": len(await prompt_ids(chosen, turn))}
        if warnings:
            said["warnings"] = warnings
        return Response(encode_json(said), media_type="application/json")

    return router
