"""API keys: who may use the server, and by which name the rest of it tells them apart.

Deny by default: with keys configured every path needs one, but for the health routes. Without keys
everything is open; then settings.py and hosts.py see to it that nobody else's machine and nobody
else's web page reaches it.
"""

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import AuthenticationError, error_response

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})

# Of the digest of a key. It is never told to anyone.
_CALLER_DIGITS = 12


class KeyGate:
    """ASGI middleware that answers 401 unless the request carries one of the keys.

    `scope["state"]["caller"]` says whose request it is: "" while there are fewer than two keys, for
    then there is nobody to tell apart; else digits that differ between keys.
    """

    def __init__(self, app: ASGIApp, *, api_keys: Sequence[SecretStr]) -> None:
        self._app = app
        digests = {_digest(key.get_secret_value().encode()) for key in api_keys}
        n_digits = _CALLER_DIGITS if len(digests) > 1 else 0
        self._callers = [(digest, digest.hex()[:n_digits]) for digest in digests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        caller = self.caller(scope)
        # scope["path"], not request.url: a URL is put together with the Host header, which lies.
        if caller is None and scope["path"] not in OPEN_PATHS:
            error = AuthenticationError("a valid API key is needed: authorization: Bearer KEY")
            await error_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller or ""
        await self._app(scope, receive, send)

    def caller(self, scope: Scope) -> str | None:
        """Whose request it is; None: it has no right key."""
        if not self._callers:
            return ""
        sent = _digest(_sent_key(scope))
        # All keys are compared, each in constant time: the time tells neither which nor how much.
        same = [hmac.compare_digest(sent, digest) for digest, _ in self._callers]
        return self._callers[same.index(True)][1] if any(same) else None


def _sent_key(scope: Scope) -> bytes:
    """As it came, for a key is bytes; b"", which is no key, unless there is exactly one. With an
    authorization header, x-api-key is passed over.
    """
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
        return bytes(keys[0].strip(b" \t")) if len(keys) == 1 else b""
    scheme, _, key = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return bytes(key.strip(b" \t")) if scheme.lower() == b"bearer" else b""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
