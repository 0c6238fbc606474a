"""API keys: who may use the server.

Deny by default: with keys configured every path needs one, but for the health routes. Without keys
everything is open, and the settings see to it that only this machine can reach it.
"""

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import AuthenticationError, error_response

_OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})


class KeyGate:
    """ASGI middleware that answers 401 unless the request carries one of the keys."""

    def __init__(self, app: ASGIApp, *, api_keys: Sequence[SecretStr]) -> None:
        self._app = app
        self._digests = [_digest(key.get_secret_value().encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # scope["path"], not request.url: a URL is put together with the Host header, which lies.
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._admits(scope):
            await self._app(scope, receive, send)
            return
        error = AuthenticationError("a valid API key is needed: authorization: Bearer KEY")
        await error_response(error)(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        if not self._digests:
            return True
        values = Headers(scope=scope).getlist("authorization")
        scheme, _, key = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        sent = _digest(key.strip().encode("latin-1"))
        # All keys are compared, each in constant time: the time tells neither which nor how much.
        matches = [hmac.compare_digest(sent, digest) for digest in self._digests]
        return any(matches) and scheme.lower() == "bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
