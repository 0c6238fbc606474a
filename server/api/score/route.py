"""POST /v1/score: a prompt and continuations in, how likely each of them is out."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...schema.errors import GENERATION_ERRORS
from ...schema.score import ScoreRequest, Scores
from ...service import Service
from ..respond import answered
from .scoring import scoring


def score_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["scoring"], route_class=JsonRoute)

    @router.post(
        "/v1/score",
        response_model=Scores,
        responses={
            200: {"description": "The scores; with `stream: true`, each of them as an event."},
            **GENERATION_ERRORS,
        },
    )
    async def score(body: ScoreRequest, request: Request) -> Response:
        """How likely each of some continuations of one prompt is. The prompt is computed once."""
        waiter = Waiter.of(request)
        job, answer, chosen = await scoring(service, body, waiter)
        stream = chosen.start_score(job, waiter)
        return await answered(chosen, stream, answer, waiter, is_streamed=bool(body.stream))

    return router
