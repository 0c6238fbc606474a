"""POST /completion and POST /infill: texts in, what continues or joins them out, in llama-server's
form.
"""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...schema.errors import LLAMA_ERRORS, llama_errors
from ...schema.llama_completion import (
    ChosenFields,
    InfillRequest,
    LlamaCompletion,
    LlamaCompletionRequest,
)
from ...service import Service
from ..generation import Wire
from ..respond import respond
from .generation import infill_generation, llama_generation

LLAMA = Wire("llama_completion", LlamaCompletionRequest, llama_generation, has_prompt=True)
INFILL = Wire("llama_infill", InfillRequest, infill_generation, has_prompt=False)

_ANSWERED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion; a list for several prompts or choices; with "
        "`stream: true`, its pieces as events."
    },
    **LLAMA_ERRORS,
}


def llama_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/completion",
        response_model=LlamaCompletion | list[LlamaCompletion] | ChosenFields | list[ChosenFields],
        responses=_ANSWERED,
    )
    async def create_llama_completion(body: LlamaCompletionRequest, request: Request) -> Response:
        return await respond(service, LLAMA, body, Waiter.of(request))

    @router.post(
        "/infill",
        response_model=LlamaCompletion | list[LlamaCompletion] | ChosenFields | list[ChosenFields],
        responses={**_ANSWERED, **llama_errors(501)},
    )
    async def create_infill(body: InfillRequest, request: Request) -> Response:
        """What belongs between two texts, for models that were made to fill in."""
        return await respond(service, INFILL, body, Waiter.of(request))

    return router
