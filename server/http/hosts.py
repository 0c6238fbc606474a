"""Hosts and web pages: under which names the server answers, and which pages may use it.

A page of any origin can send requests to a server on its reader's machine. Without keys, two
headers give such a page away: Origin, and Host if the page's own name was pointed at this server
(DNS rebinding). With keys neither matters, because no browser adds a key by itself. Programs other
than browsers send the right Host and no Origin; very old ones send no Host at all.
"""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ForbiddenOriginError, MisdirectedError, error_response
from .host_names import host_of, host_of_header

_ANY = "*"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


class HostGate:
    """ASGI middleware that answers 421 for an unknown host and 403 for an unknown page."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        allow_hosts: Sequence[str],
        allow_origins: Sequence[str],
        has_keys: bool,
    ) -> None:
        """`host`: the address the server is bound to. `allow_hosts` are allowed in addition to it
        and to this machine's own names; if it is empty and there are keys, any host is allowed.
        "*" in a list allows all.
        """
        self._app = app
        bound = host_of(host)
        self._hosts = {bound, *(host_of(name) for name in allow_hosts if name != _ANY)}
        self._any_host = _ANY in allow_hosts or (has_keys and not allow_hosts)
        # DNS cannot point an address elsewhere. But on the loopback, other addresses are foreign.
        self._any_address = not bound.is_loopback
        self._origins = {origin.lower() for origin in allow_origins}
        self._any_origin = _ANY in allow_origins or has_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = None if scope["type"] == "lifespan" else self._error(scope)
        app = self._app if error is None else error_response(error)
        await app(scope, receive, send)

    def _error(self, scope: Scope) -> Exception | None:
        host = header_values(scope, b"host")
        if not self._any_host and not self._may_name(scope, host):
            return MisdirectedError(
                "the server does not answer under this host; the option allow_hosts adds one"
            )
        origin = header_values(scope, b"origin")
        if not self._any_origin and not self._may_use(scope, origin):
            return ForbiddenOriginError(
                "pages of this origin may not use the server; the option allow_origins adds one"
            )
        return None

    def _may_name(self, scope: Scope, host: Sequence[str]) -> bool:
        """HTTP/1.0 has no Host: load balancers check health so, browsers never use it."""
        if not host:
            return scope.get("http_version") == "1.0"
        return len(host) == 1 and self._is_own(host[0])

    def _is_own(self, header: str) -> bool:
        host = host_of_header(header)
        if host is None:
            return False
        is_safe_address = host.address is not None and self._any_address
        return host.is_loopback or is_safe_address or host in self._hosts

    def _may_use(self, scope: Scope, origin: Sequence[str]) -> bool:
        """Any page may send a request that only reads: the browser hides the answer from it."""
        if not origin or scope.get("method") in _READING:
            return True
        return len(origin) == 1 and origin[0] in own_origins(scope) | self._origins


def own_origins(scope: Scope) -> set[str]:
    """The origins of pages that come from this server itself, as the request names it."""
    hosts = header_values(scope, b"host")
    return {f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts}


def header_values(scope: Scope, name: bytes) -> list[str]:
    """The values of all headers with that name, in lower case."""
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]
