"""The sockets of `soliton serve`, and what listens on them.

Owns which address is bound and when: before a model is loaded, so that a port in use is reported at
once. Knows no model.
"""

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..http.protocol import http_protocol
from ..http.socket_options import ACCEPTED_AT_ONCE
from ..process.service_manager import PassedSocketError, passed_socket
from ..settings import Settings
from ..stream.access_log import log_refused
from .terminal import CommandError

_KEEP_ALIVE_S = 30
_PORTS_TRIED = 20  # to find a free one when that of the options is in use


@contextmanager
def bound_sockets(settings: Settings) -> Iterator[list[socket.socket]]:
    """That of the server, and that of its health checks if it has one. Raises CommandError."""
    with ExitStack() as bound:
        socks = [bound.enter_context(_main_socket(settings))]
        if (port := settings.health_port) is not None:
            sock = _bound_socket(settings.host, port, "--health-port")
            socks.append(bound.enter_context(sock))
        _check_reach(settings, socks[0])
        yield socks


def listening(app: ASGIApp, settings: Settings, ports: Sequence[int]) -> uvicorn.Config:
    """How to serve `app` on the bound sockets. `ports`: theirs."""
    return uvicorn.Config(
        app,
        http=http_protocol(
            settings,
            health_port=ports[1] if ports[1:] else None,
            on_refused=log_refused if settings.access_log else lambda _: None,
        ),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )


def _main_socket(settings: Settings) -> socket.socket:
    """The socket that systemd passed, whatever the options say, or one bound to their address.

    Raises CommandError.
    """
    try:
        sock = passed_socket()
    except PassedSocketError as error:
        raise CommandError(f"the socket that systemd passed: {error}") from error
    return sock or _bound_socket(settings.host, settings.port, "--port")


def _bound_socket(host: str, port: int, flag: str) -> socket.socket:
    """A socket that owns the address but does not listen yet. `flag`: the port's option. Raises
    CommandError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CommandError(f"host {host}: {error.strerror}") from error
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            free = next(filter(partial(_is_free, family, address), _ports_after(port)), "N")
            raise CommandError(
                f"port {port} of {host} is in use; choose another one: {flag} {free}"
            ) from error
        raise CommandError(f"cannot use port {port} of {host}: {error.strerror}") from error
    return sock


def _ports_after(port: int) -> range:
    return range(port + 1, min(port + _PORTS_TRIED, 65535) + 1)


def _is_free(family: int, address: tuple[Any, ...], port: int) -> bool:
    """Whether that port of the address can be bound now."""
    with socket.socket(family, socket.SOCK_STREAM) as sock, suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address[0], port, *address[2:]))
        return True
    return False


def _check_reach(settings: Settings, sock: socket.socket) -> None:
    """Check the bound address, which a host name resolves to only now. Raises CommandError."""
    try:
        settings.check_reach(sock.getsockname()[0])
    except ValueError as error:
        raise CommandError(str(error)) from error
