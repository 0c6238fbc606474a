"""The listener for health checks: it answers them as the main one does, and nothing else.

On its own listener a health check gets through, however busy the main one is. Knows no socket: the
protocol sends the connections of that listener here.
"""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import http_error_response
from .auth import HEALTH_PATHS
from .path_aliases import canonical


class HealthOnly:
    """ASGI middleware that answers 404 for every path except those of health checks."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_check = canonical(scope["path"]) in HEALTH_PATHS
        app = self._app if is_check else http_error_response(HTTPException(404))
        await app(scope, receive, send)
