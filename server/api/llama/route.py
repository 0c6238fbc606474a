"""POST /completion: a text in, its continuation out, in llama-server's form."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...schema.errors import GENERATION_ERRORS
from ...schema.llama_completion import LlamaCompletion, LlamaCompletionRequest
from ...service import Service
from ..generation import Wire
from ..respond import respond
from .generation import llama_generation

LLAMA = Wire("llama_completion", LlamaCompletionRequest, llama_generation, has_prompt=True)


def llama_routes(service: Service) -> APIRouter:
    """The route, over one engine."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/completion",
        response_model=LlamaCompletion | list[LlamaCompletion],
        responses={
            200: {
                "description": "The completion; a list for several prompts or choices; with "
                "`stream: true`, its pieces as events."
            },
            **GENERATION_ERRORS,
        },
    )
    async def create_llama_completion(body: LlamaCompletionRequest, request: Request) -> Response:
        return await respond(service, LLAMA, body, Waiter.of(request))

    return router
