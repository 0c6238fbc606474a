"""GET /health, /health/live and /health/ready: for whoever starts and balances servers."""

from fastapi import APIRouter

from .errors import UnavailableError
from .schema.errors import error_responses
from .schema.models import Health
from .service import Service


def system_routes(service: Service) -> APIRouter:
    """The routes, over one engine; never behind an API key and never waiting for the engine."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live", responses=error_responses(421))
    async def live() -> Health:
        """The process answers."""
        return Health(status="ok")

    @router.get("/health", responses=error_responses(421, 503))
    @router.get("/health/ready", responses=error_responses(421, 503))
    async def ready() -> Health:
        """The engine takes work."""
        if not service.lease.ready:
            raise UnavailableError("the engine takes no work at the moment")
        return Health(status="ok")

    return router
