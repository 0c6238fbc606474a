"""API keys: who may use the server, and how the rest of it tells callers apart.

Deny by default: with keys configured, every path needs one except the health routes, / and the page
at /ui, which then say nothing about the model. Without keys everything is open; settings.py and
hosts.py then keep out other machines and other web pages. What needs an admin key is closed without
one, whatever else is open.
"""

import hashlib
import hmac
from collections.abc import Sequence
from itertools import product

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
    fewer than two keys, because then there are no callers to tell apart. `is_admin` beside it says
    whether the request carries an admin key.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_keys: Sequence[SecretStr],
        admin_keys: Sequence[SecretStr] = (),
    ) -> None:
        """`api_keys`: all that open the door, those of admins among them; none: it is open."""
        self._app = app
        self._callers = _callers(api_keys)
        self._admins = [digest for digest, _ in _callers(admin_keys)]

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
        state = scope.setdefault("state", {})
        state["caller"], state["is_admin"] = caller or "", self._is_admin(scope)
        await self._app(scope, receive, send)

    def caller(self, scope: Scope) -> str | None:
        """Whose request it is; None: it has no right key."""
        if not self._callers:
            return ""
        sent = _digest(_sent_key(scope) or _only(scope, b"x-admin-key"))
        # Compares all keys, each in constant time: the time reveals neither which key matched nor
        # how many of its bytes.
        same = [hmac.compare_digest(sent, digest) for digest, _ in self._callers]
        return self._callers[same.index(True)][1] if any(same) else None

    def _is_admin(self, scope: Scope) -> bool:
        if not self._admins:
            return False
        sent = [_digest(_sent_key(scope)), _digest(_only(scope, b"x-admin-key"))]
        same = [hmac.compare_digest(*pair) for pair in product(sent, self._admins)]
        return any(same)


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
        return _only(scope, b"x-api-key")
    scheme, _, key = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return bytes(key.strip(b" \t")) if scheme.lower() == b"bearer" else b""


def _only(scope: Scope, header: bytes) -> bytes:
    """The value of a header that was sent once, else b""."""
    values = [value for name, value in scope["headers"] if name == header]
    return bytes(values[0].strip(b" \t")) if len(values) == 1 else b""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
