"""What other servers have and this one does not: 501, with a sentence that says so.

Owns the list of these paths. They are not in the contract.
"""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..errors import NotServedError

_EMBEDDINGS = "embeddings: this server has a model that writes text, and none that embeds it"
_RANKS = (
    "reranking is not served; POST /v1/score says how likely the model holds each of several texts"
)
_PROPS = "the properties of this server are set when it starts: see soliton serve --help"
_SOUND = "audio is not served: this server reads and writes text"
_COMPACTED = (
    "conversations are not compacted: send a shorter input, or truncation: auto, to POST "
    "/v1/responses"
)
_IMAGES = "images are not served: this server reads and writes text"

_REASONS = {
    "/v1/embeddings": _EMBEDDINGS,
    "/embeddings": _EMBEDDINGS,
    "/embedding": _EMBEDDINGS,
    "/api/embed": _EMBEDDINGS,
    "/api/embeddings": _EMBEDDINGS,
    "/v1/rerank": _RANKS,
    "/v1/reranking": _RANKS,
    "/rerank": _RANKS,
    "/v1/responses/compact": _COMPACTED,
    "/reranking": _RANKS,
    "/props": _PROPS,
    "/v1/audio/speech": _SOUND,
    "/v1/audio/transcriptions": _SOUND,
    "/v1/audio/translations": _SOUND,
    "/audio/transcriptions": _SOUND,
    "/v1/images/generations": _IMAGES,
    "/v1/images/edits": _IMAGES,
}


def not_served_routes() -> APIRouter:
    """A route for each of the paths."""
    router = APIRouter(include_in_schema=False)

    async def refuse(request: Request) -> Response:
        raise NotServedError(_REASONS[request.scope["path"]])

    for path in _REASONS:
        router.add_api_route(path, refuse, methods=["POST"])
    return router
