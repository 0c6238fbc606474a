"""API keys: who may use the server, and how the rest of it tells callers apart.

Deny by default: with keys configured, every path needs one except the health routes, / and the page
at /ui, which then say nothing about the model. Without keys everything is open; settings.py and
hosts.py then keep out other machines and other web pages.
"""

import hashlib
import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import AuthenticationError, error_response

HEALTH_PATHS = frozenset({"/health", "/health/live", "/health/ready"})
_OPEN_PATHS = HEALTH_PATHS | {"/", "/ui"}
# The files of the page. No route below has anything else.
_OPEN_PREFIX = "/ui/"

# Hex digits of a key's digest that stand for its caller. Never sent to anyone.
_CALLER_DIGITS = 12


def owners(api_keys: Sequence[SecretStr]) -> dict[str, str]:
    """What stands for the key of each caller in files: no other key has the same, and nobody can
    tell the key from it.
    """
    if not api_keys:
        return {"": ""}
    return {
        caller: hashlib.sha256(b"owner of kept streams" + digest).hexdigest()
        for digest, caller in _callers(api_keys)
    }


class KeyGate:
    """ASGI middleware that answers 401 unless the request carries one of the keys.

    `scope["state"]["caller"]` identifies the caller: digits that differ between keys, or "" with
    fewer than two keys, because then there are no callers to tell apart.
    """

    def __init__(self, app: ASGIApp, *, api_keys: Sequence[SecretStr]) -> None:
        self._app = app
        self._callers = _callers(api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        caller = self.caller(scope)
        # scope["path"], not request.url: a URL is put together with the Host header, which lies.
        if caller is None and not _is_open(scope):
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
        # Compares all keys, each in constant time: the time reveals neither which key matched nor
        # how many of its bytes.
        same = [hmac.compare_digest(sent, digest) for digest, _ in self._callers]
        return self._callers[same.index(True)][1] if any(same) else None


def _callers(api_keys: Sequence[SecretStr]) -> list[tuple[bytes, str]]:
    """The digest of each key, and its caller."""
    digests = {_digest(key.get_secret_value().encode()) for key in api_keys}
    n_digits = _CALLER_DIGITS if len(digests) > 1 else 0
    return [(digest, digest.hex()[:n_digits]) for digest in digests]


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return scope["type"] == "http" and (path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX))


def _sent_key(scope: Scope) -> bytes:
    """The key's bytes as sent; b"", which is not a key, unless exactly one was sent. An
    authorization header overrides x-api-key.
    """
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
        return bytes(keys[0].strip(b" \t")) if len(keys) == 1 else b""
    scheme, _, key = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return bytes(key.strip(b" \t")) if scheme.lower() == b"bearer" else b""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
