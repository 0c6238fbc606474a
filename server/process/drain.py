"""How a server ends: it drains.

Owns what a signal does, who may still finish and for how long, and the end of those who do not.
Knows no command line. Of the requests that have come, those that run or wait go on within the
limit; then each of the others is told, in its stream or by a status, and the process ends.
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
from types import FrameType
from typing import NoReturn

import uvicorn
from typing_extensions import override

from ..errors import UnavailableError
from ..http.protocol import HttpProtocol
from ..http.slow_readers import SlowReaders
from ..lease.lease import EngineLease
from ..lease.trials import Trials

_logger = logging.getLogger(__name__)

_TICK_S = 0.02
# Who is told of the end is given so long to read it, and the engine to leave its step. Together
# with the rest less than the second behind the limit in which the process has to be gone.
_LEAVE_S = 0.3
_READ_S = 0.2
_HURRIED_S = 0.1
# After a second signal nothing takes longer, whatever state the event loop is in.
_HARD_END_S = 0.3
# A whole process group gets a signal, and a wrapper in it passes on its own: that is one wish.
_ONE_SIGNAL_S = 0.5


class DrainingServer(uvicorn.Server):
    """uvicorn's server with an ordinary end, by a signal or by `should_exit`.

    Signals are taken on the main thread only, and those of the caller are put back.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        lease: EngineLease,
        trials: Trials,
        readers: SlowReaders,
        drain_seconds: float,
    ) -> None:
        """`config` is of an app that has the other parts; its connections are HttpProtocol's."""
        super().__init__(config)
        self._lease = lease
        self._trials = trials
        self._readers = readers
        self._drain_seconds = drain_seconds
        self._hurried = 0  # the second signal
        self._signalled_at = -math.inf

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._lease.stop_admitting()
        self._trials.end()  # whoever is in there has not been admitted
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        end = time.monotonic() + self._drain_seconds
        # Requests that were on their way are read, and refused.
        await asyncio.sleep(_TICK_S)
        _logger.info(
            "stopping: %d connections have %g s to end; a second signal ends at once",
            len(self.server_state.connections),
            self._drain_seconds,
        )
        await self._gone(until=end)
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
            return  # what a supervisor may send behind SIGTERM
        now = time.monotonic()
        if now < self._signalled_at + _ONE_SIGNAL_S:
            return
        self._signalled_at = now
        if not self.should_exit:
            self.should_exit = True
        elif self._hurried:  # and no timer has ended it
            os._exit(128 + sig)
        else:
            self._hurried = sig
            timer = threading.Timer(_HARD_END_S, os._exit, [128 + sig])
            timer.daemon = True
            timer.start()

    async def _gone(self, *, until: float) -> None:
        """Wait for the last connection to end, or for that time."""
        state, told = self.server_state, set[HttpProtocol]()
        while state.connections or state.tasks:
            for connection in self._connections() - told:
                connection.shutdown()  # at once if it is idle, else behind its answer
                told.add(connection)
            if time.monotonic() >= until or self._hurried:
                return
            await asyncio.sleep(_TICK_S)

    async def _cut_off(self) -> None:
        """Tell those who are left, and end their connections."""
        connections = self._connections()
        if not connections and not self._lease.busy:
            return
        _logger.warning("cut off %d connections that did not end in time", len(connections))
        error = UnavailableError("the server is shutting down")
        await self._lease.close(seconds=_HURRIED_S if self._hurried else _LEAVE_S)
        await self._told()
        self._readers.end_all(error)  # who has left so much unread that the end is far off
        await self._told()
        for connection in self._connections():
            connection.end(error)
        await asyncio.sleep(_TICK_S)
        for connection in self._connections():
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()

    async def _told(self) -> None:
        until = time.monotonic() + (_HURRIED_S if self._hurried else _READ_S) / 2
        while self.server_state.connections and time.monotonic() < until:
            await asyncio.sleep(_TICK_S / 4)

    async def _close(self, *, until: float) -> None:
        """End the app; the process with it, if the engine does not come back."""
        if self._hurried:
            leave(128 + self._hurried)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self.lifespan.shutdown()
        except TimeoutError:
            _logger.warning("left before the engine had ended its step, or written its cache")
            leave(0)

    def _connections(self) -> set[HttpProtocol]:
        connections = self.server_state.connections
        return {connection for connection in connections if isinstance(connection, HttpProtocol)}


@contextmanager
def signals_handled(handle: "signal._HANDLER") -> Iterator[None]:
    """SIGINT, SIGTERM and, unless it is ignored as by nohup, SIGHUP go to `handle`. On the main
    thread only.
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
    """End the process whatever its threads are at, without taking the interpreter apart."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
