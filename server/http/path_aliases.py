"""Other paths for the same routes, as clients of other servers request them.

Owns the list of them. Every other layer sees only a route's own path, so an alias needs a key if
its route does, counts as its route in the metrics, and is not in the contract.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

_ALIASES = {
    # For a base URL without /v1.
    "/completions": "/v1/completions",
    "/chat/completions": "/v1/chat/completions",
    "/responses": "/v1/responses",
    "/models": "/v1/models",
    "/chat/completions/input_tokens": "/v1/chat/completions/input_tokens",
    # TabbyAPI's other names, its list of what could be loaded, and Aphrodite's names.
    "/v1/model/list": "/v1/models",
    "/v1/loras": "/v1/lora/list",
    "/v1/templates": "/v1/template/list",
    "/v1/sampling/overrides": "/v1/sampling/override/list",
    "/v1/tokenize": "/tokenize",
    "/v1/detokenize": "/detokenize",
    # Health checks of load balancers and of other servers' clients.
    "/v1/health": "/health",
    "/ping": "/health",
    # OPTIONS for the server as a whole: no route can have that path itself.
    "*": "/*",
}
_MODEL, _MODEL_ALIAS = "/v1/models/", "/models/"


class Aliases:
    """The outermost ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        own = canonical(path)
        if own != path:
            raw_path = scope["raw_path"]
            if own.startswith(_MODEL):  # the rest of the path stays as sent, in both
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
