"""Who may use the engine: one at a time, in order of arrival.

The lease owns the queue and the one engine thread. A ticket is work for that thread; the thread
takes the next ticket only after the work of the last one has returned, so nobody's cancellation can
let two callers into the engine. Cancelling a ticket that waits removes it at once; cancelling the
one that runs sets its abort flag, and the engine leaves at its next step.

A plain asyncio.Lock would not do: cancelling a task that awaits a thread frees the lock while the
thread is still in native code.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine import AbortFlag

from .errors import QueueFullError, UnavailableError

_logger = logging.getLogger(__name__)

_JOIN_SECONDS = 30.0


class Ticket:
    """A place in the queue, then the engine itself, until the work returns."""

    __slots__ = ("_lease", "abort", "refuse", "released", "work")

    def __init__(
        self,
        lease: "EngineLease",
        work: Callable[[AbortFlag], None],
        refuse: Callable[[Exception], None],
        released: Callable[[], None],
    ) -> None:
        self._lease = lease
        self.work = work
        self.refuse = refuse
        self.released = released
        self.abort = AbortFlag()

    def cancel(self) -> bool:
        """Give the place up; harmless when the work is done. Whether the work will never run."""
        return self._lease.cancel(self)


class EngineLease:
    """A queue of tickets and the engine thread that serves them, first come, first served."""

    def __init__(self, *, max_queue: int) -> None:
        """`max_queue`: how many may wait while one runs."""
        self._max_queue = max_queue
        self._changed = threading.Condition()
        self._queue: deque[Ticket] = deque()
        self._running: Ticket | None = None
        self._open = False
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """Whether a ticket submitted now would be served."""
        return self._open and self._thread is not None and self._thread.is_alive()

    @property
    def n_waiting(self) -> int:
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether the engine thread is inside a ticket's work."""
        return self._running is not None

    def start(self) -> None:
        """Start the engine thread."""
        self._open = True
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    async def close(self) -> bool:
        """Refuse all who wait, abort the one that runs, and wait for the engine thread to end.

        Whether it has: then the engine is the caller's.
        """
        with self._changed:
            self._open = False
            if self._running is not None:
                self._running.abort.set()
            self._changed.notify_all()
        self._refuse_all(UnavailableError("the server is shutting down"))
        if self._thread is None:
            return True
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)
        return not self._thread.is_alive()

    @contextmanager
    def closing_in(self, seconds: float) -> Iterator[None]:
        """Close as `close` does, unless the block ends before. On the event loop."""
        task = asyncio.create_task(self._close_in(seconds))
        try:
            yield
        finally:
            task.cancel()

    async def _close_in(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.close()

    def submit(
        self,
        work: Callable[[AbortFlag], None],
        *,
        refuse: Callable[[Exception], None],
        released: Callable[[], None] = lambda: None,
    ) -> Ticket:
        """Queue `work(abort)` for the engine thread.

        `released()` is called there behind it, when the next request finds the engine free;
        `refuse(error)` instead of both when the lease closes first. Raises QueueFullError and
        UnavailableError.
        """
        ticket = Ticket(self, work, refuse, released)
        with self._changed:
            if not self.ready:
                raise UnavailableError("the engine takes no work at the moment")
            if self.n_waiting + self.busy > self._max_queue:
                raise QueueFullError(
                    f"{self._max_queue} requests wait for the engine, as many as may wait"
                )
            self._queue.append(ticket)
            self._changed.notify_all()
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        with self._changed:
            ticket.abort.set()
            waits = ticket in self._queue
            if waits:
                self._queue.remove(ticket)
            return waits

    def _serve(self) -> None:
        """The engine thread."""
        try:
            while (ticket := self._next()) is not None:
                self._serve_one(ticket)
        finally:
            # Reached by close, or by what no work may survive (SystemExit, a dying interpreter).
            self._open = False
            self._refuse_all(UnavailableError("the engine has stopped"))

    def _serve_one(self, ticket: Ticket) -> None:
        try:
            ticket.work(ticket.abort)
        except Exception:
            _logger.exception("a ticket's work must not raise")
        finally:
            with self._changed:
                self._running = None
        ticket.released()

    def _next(self) -> Ticket | None:
        with self._changed:
            while self._open and not self._queue:
                self._changed.wait()
            if not self._open:
                return None
            self._running = self._queue.popleft()
            return self._running

    def _refuse_all(self, error: UnavailableError) -> None:
        with self._changed:
            refused = list(self._queue)
            self._queue.clear()
        for ticket in refused:
            ticket.refuse(error)
