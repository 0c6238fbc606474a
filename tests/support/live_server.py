"""An app on a real socket: uvicorn in a thread, a free loopback port, plain sockets to it."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from engine import Engine
from server.app import app_over, create_app
from server.http.protocol import http_protocol
from server.lease.lease import EngineLease, Ticket
from server.lease.served_model import ServedModel
from server.settings import Settings
from server.stream.access_log import log_refused


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, "an envelope has four keys"
        return error


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server that runs."""

    port: int
    app: FastAPI
    stop: Callable[[], None]
    """Begin to shut down; leaving the `with` block waits for the end."""
    connections: set[Any]
    """The protocol objects of all open connections; the server's thread changes the set."""
    health_port: int | None = None

    @property
    def lease(self) -> EngineLease:
        lease: EngineLease = self.app.state.lease
        return lease

    @property
    def running(self) -> Ticket | None:
        """The ticket that the engine thread works for."""
        return self.lease.running

    @property
    def n_received(self) -> list[int]:
        """How many bytes the server has read on each open connection."""
        return [connection.n_received for connection in list(self.connections)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            return _answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, {"content-type": "application/json", **headers})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, path: str, body: dict[str, Any]) -> socket.socket:
        """Send a request and leave the answer to the caller, who closes the socket."""
        sock = self.connect()
        self.send_on(sock, path, body)
        return sock

    def send_on(self, sock: socket.socket, path: str, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        sock.sendall(head.encode() + data)


def read_answer(sock: socket.socket) -> Answer:
    """The whole answer to a request that was sent on `sock`."""
    response = http.client.HTTPResponse(sock)
    response.begin()
    return _answer(response)


def _answer(response: http.client.HTTPResponse) -> Answer:
    names = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, names, response.read())


@contextmanager
def live_server(
    engine: Engine,
    *,
    protocol: type[asyncio.Protocol] | None = None,
    wrapped: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    **options: Any,
) -> Iterator[LiveServer]:
    """Serve `engine` with these settings while the block runs; `wrapped` is put between the socket
    and the app.
    """
    settings = Settings(**options)
    with live_app(create_app(settings, engine), settings, protocol, wrapped) as server:
        yield server


@contextmanager
def live_models(engines: Mapping[str, Engine], **options: Any) -> Iterator[LiveServer]:
    """Serve several models by these names; all but the first one are asleep."""
    settings = Settings(**options)
    models = [ServedModel((name,), engine) for name, engine in engines.items()]
    for model in models[1:]:
        model.put_away()
    with live_app(app_over(models, settings), settings) as server:
        yield server


@contextmanager
def live_app(
    app: FastAPI,
    settings: Settings,
    protocol: type[asyncio.Protocol] | None = None,
    wrapped: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Iterator[LiveServer]:
    """Serve the app of these settings while the block runs."""
    with ExitStack() as bound:
        n_ports = 1 if settings.health_port is None else 2
        socks = [bound.enter_context(_bound_socket()) for _ in range(n_ports)]
        ports = [sock.getsockname()[1] for sock in socks]
        health_port = ports[1] if n_ports == 2 else None
        config = uvicorn.Config(
            wrapped(app),
            http=_counting(
                protocol
                or http_protocol(
                    settings,
                    health_port=health_port,
                    on_refused=log_refused if settings.access_log else lambda _: None,
                )
            ),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
        )
        server = uvicorn.Server(config)

        def stop() -> None:
            server.should_exit = True

        thread = threading.Thread(target=server.run, kwargs={"sockets": socks})
        thread.start()
        try:
            wait_until(lambda: server.started)
            connections = server.server_state.connections
            yield LiveServer(ports[0], app, stop, connections, health_port)
        finally:
            stop()
            thread.join(30)
            assert not thread.is_alive(), "the server did not stop"


def _counting(protocol: type[asyncio.Protocol]) -> type[asyncio.Protocol]:
    class Counting(protocol):  # type: ignore[misc, valid-type]
        n_received = 0

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.n_received += len(data)

    return Counting


def _bound_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    return sock


def wait_until(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    """Poll until `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        time.sleep(0.002)
