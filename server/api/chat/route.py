"""POST /v1/chat/completions: a conversation in, the next reply out, whole or streamed."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...schema.chat import ChatCompletion, ChatCompletionRequest
from ...schema.errors import GENERATION_ERRORS
from ...service import Service
from ..generation import Wire
from ..respond import respond
from .generation import chat_generation

CHAT = Wire("chat", ChatCompletionRequest, chat_generation, has_prompt=False)


def chat_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses={
            200: {"description": "The reply; with `stream: true`, its pieces as events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_chat_completion(body: ChatCompletionRequest, request: Request) -> Response:
        return await respond(service, CHAT, body, Waiter.of(request))

    return router
