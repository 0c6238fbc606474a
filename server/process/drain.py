"""Graceful shutdown: the server drains.

Owns what a signal does, which requests may still finish and for how long, and how the others end.
Knows no command line. Requests that run or wait go on within the limit. Then the rest get an error,
in their stream or as a status, and the process ends.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, Protocol

import uvicorn
from typing_extensions import override

from ..errors import UnavailableError
from ..http.protocol import HttpProtocol
from ..http.slow_readers import SlowReaders
from ..kept.registry import KeptStreams
from ..lease.lease import EngineLease
from ..lease.trials import Trials

_logger = logging.getLogger(__name__)

_TICK_S = 0.02
# Time for clients to read the error (_READ_S), and for the engine to leave its step (_LEAVE_S).
# With everything else they add up to less than the second after the limit by which the process
# must have ended.
_LEAVE_S = 0.3
_READ_S = 0.2
_HURRIED_S = 0.1
# A second signal ends the process within this time, whatever the event loop does.
_HARD_END_S = 0.3
# A process group may get a signal twice, once directly and once from a wrapper: they count as one.
_ONE_SIGNAL_S = 0.5


class Work(Protocol):
    """What a server does besides sending: it has to end before the process."""

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        ...

    def stop_admitting(self) -> None:
        """Refuse what comes from now on."""
        ...

    async def put_down(self, *, until: float) -> None:
        """Keep for the next process what can be kept, until a time of the event loop."""
        ...

    async def cut_off(self, *, seconds: float) -> None:
        """End what runs or waits with an error, within so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class EngineWork:
    """The work of an app over an engine."""

    lease: EngineLease
    trials: Trials
    kept: KeptStreams

    @property
    def busy(self) -> bool:
        return self.lease.busy

    def stop_admitting(self) -> None:
        self.lease.stop_admitting()
        self.trials.end()  # requests in there have not been admitted yet

    async def put_down(self, *, until: float) -> None:
        await self.kept.put_down(until=until)

    async def cut_off(self, *, seconds: float) -> None:
        await self.lease.close(seconds=seconds)


class DrainingServer(uvicorn.Server):
    """uvicorn's server with a graceful shutdown, by a signal or by `should_exit`.

    Handles signals only on the main thread, and restores the caller's handlers.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        work: Work,
        readers: SlowReaders,
        drain_seconds: float,
    ) -> None:
        """The other arguments belong to the app of `config`, whose protocol is HttpProtocol."""
        super().__init__(config)
        self._work = work
        self._readers = readers
        self._drain_seconds = drain_seconds
        self._hurried = 0  # the number of the second signal
        self._signalled_at = -math.inf

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._work.stop_admitting()
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        end = time.monotonic() + self._drain_seconds
        # Requests that are already arriving are read and refused.
        await asyncio.sleep(_TICK_S)
        _logger.info(
            "shutting down: %d connections have %g s to finish; a second signal ends at once",
            len(self.server_state.connections),
            self._drain_seconds,
        )
        await self._gone(until=end)
        # What goes on after a restart is put down before the rest is cut off. The loop's clock is
        # that of `end`.
        leave_s = _HURRIED_S if self._hurried else _LEAVE_S
        await self._work.put_down(until=max(end, time.monotonic() + leave_s))
        await self._cut_off()
        await self._close(until=max(end, time.monotonic()) + _READ_S)

    @contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with signals_handled(self.handle_exit):
            yield

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGHUP:
            return  # a supervisor may send it after SIGTERM
        now = time.monotonic()
        if now < self._signalled_at + _ONE_SIGNAL_S:
            return
        self._signalled_at = now
        if not self.should_exit:
            self.should_exit = True
        elif self._hurried:  # a third signal, before the timer
            os._exit(128 + sig)
        else:
            self._hurried = sig
            timer = threading.Timer(_HARD_END_S, os._exit, [128 + sig])
            timer.daemon = True
            timer.start()

    async def _gone(self, *, until: float) -> None:
        """Wait until the last connection has ended, or until that time."""
        state, closing = self.server_state, set[HttpProtocol]()
        while state.connections or state.tasks:
            for connection in self._connections() - closing:
                connection.shutdown()  # at once if it is idle, else after its answer
                closing.add(connection)
            if time.monotonic() >= until or self._hurried:
                return
            await asyncio.sleep(_TICK_S)

    async def _cut_off(self) -> None:
        """Send the remaining clients an error, and end their connections."""
        connections = self._connections()
        if not connections and not self._work.busy:
            return
        _logger.warning("cut off %d connections that did not finish in time", len(connections))
        error = UnavailableError("the server is shutting down")
        await self._work.cut_off(seconds=_HURRIED_S if self._hurried else _LEAVE_S)
        await self._wait_for_clients()
        self._readers.end_all(error)  # clients that would have to read much before the error
        await self._wait_for_clients()
        for connection in self._connections():
            connection.end(error)
        await asyncio.sleep(_TICK_S)
        for connection in self._connections():
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()

    async def _wait_for_clients(self) -> None:
        until = time.monotonic() + (_HURRIED_S if self._hurried else _READ_S) / 2
        while self.server_state.connections and time.monotonic() < until:
            await asyncio.sleep(_TICK_S / 4)

    async def _close(self, *, until: float) -> None:
        """End the app, or the whole process if the engine does not return."""
        if self._hurried:
            leave(128 + self._hurried)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self.lifespan.shutdown()
        except TimeoutError:
            _logger.warning("exited before the engine finished its step or wrote its cache")
            leave(0)

    def _connections(self) -> set[HttpProtocol]:
        connections = self.server_state.connections
        return {connection for connection in connections if isinstance(connection, HttpProtocol)}


@contextmanager
def signals_handled(handle: "signal._HANDLER") -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with `handle`; not SIGHUP if it is ignored, as by nohup.
    On the main thread only.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever its threads do, without Python's own shutdown."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
