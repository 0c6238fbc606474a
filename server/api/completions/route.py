"""POST /v1/completions: texts in, their continuations out, whole or streamed."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...schema.completions import Completion, CompletionRequest
from ...schema.errors import GENERATION_ERRORS
from ...service import Service
from ..generation import Wire
from ..respond import respond
from .generation import completion_generation

COMPLETIONS = Wire("completion", CompletionRequest, completion_generation, has_prompt=True)


def completion_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["generation"], route_class=JsonRoute)

    @router.post(
        "/v1/completions",
        response_model=Completion,
        responses={
            200: {"description": "The completion; with `stream: true`, its pieces as events."},
            **GENERATION_ERRORS,
        },
    )
    async def create_completion(body: CompletionRequest, request: Request) -> Response:
        return await respond(service, COMPLETIONS, body, Waiter.of(request))

    return router
