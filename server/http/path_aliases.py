"""Other paths of routes, as clients of other servers ask for them.

Owns that list, and nothing else knows of it: every other layer sees a route's one path. So an alias
needs the key where its route does, counts as its route in the metrics, and is not in the contract.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

_ALIASES = {
    # A base URL without /v1.
    "/completions": "/v1/completions",
    "/chat/completions": "/v1/chat/completions",
    "/models": "/v1/models",
    # What load balancers and other servers' clients ask whether the server is well.
    "/v1/health": "/health",
    "/ping": "/health",
    # OPTIONS of the server as a whole: no route can have that path itself.
    "*": "/*",
}
_MODEL, _MODEL_ALIAS = "/v1/models/", "/models/"


class Aliases:
    """ASGI middleware, outside of all others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        own = canonical(path)
        if own != path:
            raw_path = scope["raw_path"]
            if own.startswith(_MODEL):  # whose rest is as it came, in both
                raw_path = _MODEL.encode() + raw_path.removeprefix(_MODEL_ALIAS.encode())
            else:
                raw_path = own.encode()
            scope = {**scope, "path": own, "raw_path": raw_path}
        await self._app(scope, receive, send)


def canonical(path: str) -> str:
    """The route's own path."""
    if path.startswith(_MODEL_ALIAS):
        return _MODEL + path.removeprefix(_MODEL_ALIAS)
    return _ALIASES.get(path, path)
