"""What is asked of a server as such: its health, its version, what may be asked of it at all."""

from fastapi import APIRouter
from starlette.responses import Response

from ..errors import UnavailableError
from ..schema.errors import MODELLED_ERRORS, error_responses
from ..schema.models import Health, Readiness
from ..service import Service
from ..version import own_version


def system_routes(service: Service) -> APIRouter:
    """The routes, which never wait for the engine."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live", responses=MODELLED_ERRORS)
    async def live() -> Health:
        """The process answers."""
        return Health(status="ok")

    @router.get("/health", response_model_exclude_none=True, responses=error_responses(421, 503))
    @router.get(
        "/health/ready", response_model_exclude_none=True, responses=error_responses(421, 503)
    )
    async def ready() -> Readiness:
        """The engine takes work."""
        if not service.lease.ready:
            raise UnavailableError("the engine takes no work at the moment")
        return Readiness(status="ok", state="asleep" if service.shelf.is_asleep else None)

    # Neither is in the contract: the first is another server's, the second HTTP's.
    @router.get("/version", include_in_schema=False)
    async def version() -> dict[str, str]:
        return {"version": own_version()}

    @router.options("/*", include_in_schema=False)
    async def options() -> Response:
        return Response(headers={"allow": "GET, HEAD, OPTIONS, POST"})

    return router
