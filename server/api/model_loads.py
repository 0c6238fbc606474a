"""POST /v1/models/load and /v1/models/unload: models are loaded as requests come, and by hand with
an admin key. llama-server has the same paths without /v1.
"""

from fastapi import APIRouter
from starlette.requests import Request

from ..http.json_body import JsonRoute
from ..lease.waiter import Waiter
from ..request.unknown_fields import refuse_unknown_fields
from ..schema.errors import error_responses
from ..schema.model_loads import LoadDone, ModelOfLoad
from ..service import Service
from .loading import bring, check_admin, put_away

_ERRORS = error_responses(400, 401, 403, 404, 413, 415, 421, 429, 501, 503, 504)


def load_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["models"], route_class=JsonRoute)

    @router.post("/v1/models/load", responses=_ERRORS)
    async def load_model(body: ModelOfLoad, request: Request) -> LoadDone:
        """Bring a model into memory, as a request for it would."""
        check_admin(service, request)
        refuse_unknown_fields(body)
        await bring(service.serving(body.model), Waiter.of(request))
        return LoadDone(success=True)

    @router.post("/v1/models/unload", responses=_ERRORS)
    async def unload_model(body: ModelOfLoad, request: Request) -> LoadDone:
        """Give the memory of a model's weights back, when no request runs. The next request for it
        loads it again.
        """
        check_admin(service, request)
        refuse_unknown_fields(body)
        await put_away(service.serving(body.model), Waiter.of(request))
        return LoadDone(success=True)

    return router
