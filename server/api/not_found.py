"""404 for a path without a route: names the route that was probably meant.

Owns the guess. It names routes of this server only, and nothing of what the client sent.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import http_error_response
from ..http.path_aliases import canonical
from ..suggest import did_you_mean

# A base URL with too many slashes, or with /v1 where the client adds its own.
_SLASHES, _REPEATED = re.compile("/{2,}"), re.compile("^(?:/v1)+(?=/v1/)")
_LONGEST = 256
_CUTOFF = 0.8  # /v1/moderations does not mean /v1/completions


def not_found_handler(
    routes: Iterable[BaseRoute],
) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answers 404 with a guess among those routes."""
    paths = [route.path for route in routes if isinstance(route, Route) and "{" not in route.path]

    async def handle_not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        guess = nearest_route(request.scope["path"], paths) or ";"
        return http_error_response(error, hint=f"{guess} GET /openapi.json lists all routes")

    return handle_not_found


def nearest_route(path: str, routes: Sequence[str]) -> str:
    """The end of a message: "; did you mean /v1/models?", or "" if no route is near."""
    path = _SLASHES.sub("/", path[:_LONGEST].lower()).rstrip("/")
    path = canonical(_REPEATED.sub("", path))
    for route in sorted(routes, key=len, reverse=True):
        if path == route or (route.count("/") > 1 and path.endswith(route)):
            return f"; did you mean {route}?"
    return did_you_mean(path, routes, cutoff=_CUTOFF)
