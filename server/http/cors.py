"""Starlette's CORS for browsers, with refusals in the usual error envelope and in the log.

Browsers hide the reason of a refusal from a page and often from its user, so the log names it.
"""

import logging
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from ..errors import RequestError, error_response
from .hosts import header_values, own_origins

_logger = logging.getLogger(__name__)

# Allows a page from the internet to call a server in its reader's private network.
_PRIVATE_NETWORK = "access-control-allow-private-network"

# What a browser sends as its page's origin. Nothing else gets into the log.
_ORIGIN = re.compile(
    r"null|[a-z][a-z0-9+.-]{0,31}://([a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?"
)
_MAX_NAMED = 16
_ALLOWED = b"access-control-allow-origin"


class Cors(CORSMiddleware):
    """ASGI middleware."""

    @override
    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        refusal = error_response(RequestError(f"CORS: {self._reason(request_headers)}"))
        refusal.headers.update(
            {
                name: value
                for name, value in response.headers.items()
                if name not in ("content-length", "content-type", _PRIVATE_NETWORK)
            }
        )
        return refusal

    def _reason(self, request_headers: Headers) -> str:
        if not self.is_allowed_origin(request_headers["origin"]):
            return "pages of this origin may not use the server; the option allow_origins adds one"
        return f"the method must be one of {', '.join(self.allow_methods)}"


class RefusedOrigins:
    """ASGI middleware that logs, once per origin, that its pages cannot read the answers, and the
    option that would allow them. It is outside of every layer that refuses a page.
    """

    def __init__(self, app: ASGIApp, *, allow_origins: Sequence[str]) -> None:
        self._app = app
        self._allow_origins = allow_origins
        self._named = set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _foreign_origin(scope) if scope["type"] == "http" else None
        if origin is None or origin in self._named or len(self._named) > _MAX_NAMED:
            await self._app(scope, receive, send)
            return

        async def send_and_log(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_hidden(message):
                self._log(origin)
            await send(message)

        await self._app(scope, receive, send_and_log)

    def _log(self, origin: str) -> None:
        if origin in self._named or len(self._named) > _MAX_NAMED:
            return  # two requests at the same time
        self._named.add(origin)
        option = f"--allow-origins {','.join([*self._allow_origins, origin])}"
        if len(self._named) > _MAX_NAMED:
            text = "web pages from more origins were refused (CORS); they are not listed here"
        elif origin == "null":
            text = (
                "a web page without an origin, such as a file opened in a browser, was refused "
                f"(CORS): {option} would allow it and every other page that hides its origin; "
                "it is safer to serve the file over HTTP and to allow that address"
            )
        else:
            text = f"a web page from {origin} was refused (CORS): to allow it, start with {option}"
        _logger.warning(text)


def _foreign_origin(scope: Scope) -> str | None:
    """The origin of the page whose script sent the request, if it is not this server's own page."""
    origins = header_values(scope, b"origin")
    if len(origins) != 1 or not _ORIGIN.fullmatch(origins[0]) or origins[0] in own_origins(scope):
        return None
    # Browsers send these two to HTTPS and to this machine only. A page that a proxy serves under
    # the same name is not foreign, and forms and links need no permission.
    is_own = header_values(scope, b"sec-fetch-site") == ["same-origin"]
    is_script = header_values(scope, b"sec-fetch-mode") in ([], ["cors"])
    return origins[0] if is_script and not is_own else None


def _is_hidden(message: Message) -> bool:
    """Whether a browser hides this answer from a foreign page because of its origin. With status
    421 the host is at fault.
    """
    names = {name.lower() for name, _ in message["headers"]}
    return _ALLOWED not in names and message["status"] != 421
