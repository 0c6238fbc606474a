"""HTTP/1.1 on a socket: uvicorn's protocol behind a guard.

The guard passes on one well-framed request at a time. It owns how long a request may take to
arrive, and reports the phase of its connection to the table. It also owns what ends a connection:
bytes after a request that is still being answered, or the end of the client's direction. Both mean
that nobody waits for the answer, so the guard keeps reading while one is made. What the guard
itself refuses gets the usual error envelope.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, cast

import h11
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from ..errors import RequestError, UnavailableError, error_response
from .connection_table import ConnectionTable, Phase
from .framing import FramingError, RequestFraming
from .health_port import HealthOnly
from .lingering import LingeringTransport
from .seldom_log import SeldomLog
from .slow_readers import SlowReaders
from .socket_options import (
    HEALTH_CONNECTIONS,
    TOLD_OF_LIMIT,
    affordable_connections,
    notice_lost_peers,
)

_logger = logging.getLogger(__name__)


class HttpProtocol(H11Protocol):
    """One connection. Class variables hold what all connections of a server share."""

    header_timeout: ClassVar[float]
    body_timeout: ClassVar[float]
    main_table: ClassVar[ConnectionTable]
    health_table: ClassVar[ConnectionTable]
    health_port: ClassVar[int | None]
    seldom: ClassVar[SeldomLog]
    on_refused: ClassVar[Callable[[int], None]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = self.main_table
        self._framing = RequestFraming()
        self._refused = False
        self._timed = ""  # the part of a request that has a time limit now: head, body or none
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        readers: SlowReaders = self.app_state["slow_readers"]
        self._outgoing = readers.watch(transport)
        self._wire = LingeringTransport(transport, self.loop, self._more_comes)
        super().connection_made(cast(asyncio.Transport, self._wire))
        notice_lost_peers(transport.get_extra_info("socket"))
        if self.server is not None and self.server[1] == self.health_port:
            self._table = self.health_table
            self.app = HealthOnly(cast(ASGIApp, self.app))
        if self._table.admit(self, self.client[0] if self.client else ""):
            self._time_request()
        else:
            self._turn_away()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self)
        self._outgoing.lost(exc)
        self._wire.lost()
        self._outgoing.resume()
        self._time("")
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._wire.lingering:
            self._wire.discard(len(data))
            return
        self._unset_keepalive_if_required()
        if self.conn.our_state is h11.DONE:  # answered before the request has ended
            self._wire.discard(len(data))
        try:
            self._pass_on(data)
        except FramingError as error:
            self._refuse(RequestError(str(error), code=error.code), status=error.status)
        else:
            self._time_request()

    def _pass_on(self, data: bytes) -> None:
        while data:
            if self._framing.complete and self.conn.their_state is h11.IDLE:
                self._framing = self._framing.next()
            request, data = self._framing.take(data)
            if data and self.conn.our_state is not h11.DONE:
                self._say("ended a connection: more bytes came before its request was answered")
                self.transport.abort()
                return
            if request:
                super().data_received(request)
        if self._framing.complete:
            # The base class pauses before a long body is taken, and would miss a hang-up.
            self.flow.resume_reading()

    @override
    def eof_received(self) -> None:
        if self._wire.lingering:
            return
        if self._more_comes():
            self._refuse(RequestError("the request is incomplete", code="invalid_http"))
        elif self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # `close` would wait until the client has read everything

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._outgoing.pause()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._outgoing.resume()
        self._place()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._place()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError("the request is not valid HTTP", code="invalid_http"))

    @override
    def shutdown(self) -> None:
        super().shutdown()
        if self._wire.lingering:
            self.transport.abort()

    def end(self, error: Exception) -> None:
        """End the connection now, with `error` if no answer has begun."""
        if not self.transport.is_closing():
            self._refuse(error)

    def make_room(self) -> None:
        """End this connection, which waits for no answer, because another one needs its place."""
        if self._framing.started and not self._framing.complete and not self._refused:
            self._turn_away()
        else:  # without a request there is nothing to answer
            self._say("ended an idle connection to make room for another one")
            self.transport.abort()

    def cut(self) -> None:
        self.transport.abort()

    def _turn_away(self) -> None:
        self._table.turn_away(self)
        self._refuse(UnavailableError("too many connections", code="too_many_connections"))

    def _place(self) -> None:
        """Report this connection's phase to the table."""
        if self._framing.has_head and not self._framing.complete:
            phase = Phase.ARRIVING
        elif self.cycle is None:
            phase = Phase.SILENT
        elif self.cycle.response_complete and not self._outgoing.n_bytes:
            phase = Phase.KEPT
        else:
            phase = Phase.BUSY
        self._table.place(self, phase)
        if phase is Phase.BUSY:
            self._outgoing.begin()
        else:
            self._outgoing.end()

    def _say(self, text: str) -> None:
        self.seldom.say(text, text)

    def _more_comes(self) -> bool:
        """Whether the client is, or may be, in the middle of a request."""
        framing = self._framing
        return self._refused or (framing.started and not framing.complete)

    def _refuse(self, error: Exception, *, status: int | None = None) -> None:
        """Answer instead of the app, and close."""
        self._say(f"refused a request: {error}")
        state = self.conn.our_state
        if state not in (h11.IDLE, h11.SEND_RESPONSE):  # the answer has begun
            self.transport.abort()
            return
        self._refused = True
        silent = False
        answer = error_response(error)
        status = status or answer.status_code
        if state is h11.SEND_RESPONSE:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            silent = self.scope["method"] == "HEAD"
            self.scope["state"]["refused"] = status
        else:
            type(self).on_refused(status)
        headers = [
            *self.server_state.default_headers,
            *answer.raw_headers,
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status]),
            h11.Data(data=b"" if silent else bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._time("")
        self.transport.close()

    def _time_request(self) -> None:
        """Set the time limit for the part of the request that is arriving."""
        self._place()
        if self._framing.complete:
            self._time("")
        else:
            self._time("body" if self._framing.has_head else "head")

    def _time(self, part: str) -> None:
        if part == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timed = part
        if part:
            seconds = self.body_timeout if part == "body" else self.header_timeout
            self._timer = self.loop.call_later(seconds, self._late, part, seconds)

    def _late(self, part: str, seconds: float) -> None:
        if self.transport.is_closing():
            return
        if not self._framing.started:
            self.transport.close()  # no request has begun, so none is answered
            return
        error = RequestError(
            f"the {part} of the request did not arrive within {seconds:g} s", code="slow_request"
        )
        self._refuse(error, status=408)


class HttpLimits(Protocol):
    """The settings of a server that concern its connections."""

    header_timeout: float
    """Seconds."""
    body_timeout: float
    """Seconds."""
    max_connections: int
    max_connections_per_address: int | None
    """None: three quarters of all."""


def http_protocol(
    limits: HttpLimits,
    *,
    health_port: int | None = None,
    on_refused: Callable[[int], None] = lambda _: None,
) -> type[HttpProtocol]:
    """The protocol class of one server. `health_port`: the port of its health checks. `on_refused`
    receives the status of each refusal that no app has a part in.
    """
    limit = affordable_connections(
        limits.max_connections, listens_for_health=health_port is not None
    )
    per_address = limits.max_connections_per_address or -(-3 * limit // 4)

    class LimitedProtocol(HttpProtocol):
        header_timeout = limits.header_timeout
        body_timeout = limits.body_timeout
        main_table = ConnectionTable(limit=limit, per_address=per_address, told=TOLD_OF_LIMIT)
        health_table = ConnectionTable(
            limit=HEALTH_CONNECTIONS,
            per_address=HEALTH_CONNECTIONS,
            told=TOLD_OF_LIMIT,
        )
        seldom = SeldomLog(_logger, logging.INFO)

    LimitedProtocol.health_port = health_port
    LimitedProtocol.on_refused = staticmethod(on_refused)
    return LimitedProtocol
