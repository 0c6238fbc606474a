"""Who may use the engine: one at a time, in turn, and none after its deadline.

The lease owns the queue and the one engine thread. A ticket is work for that thread; the thread
takes the next ticket only after the work of the last one has returned, so nobody's cancellation can
let two callers into the engine. Cancelling a ticket that waits removes it at once; cancelling the
one that runs sets its abort flag, and the engine leaves at its next step.

A plain asyncio.Lock would not do: cancelling a task that awaits a thread frees the lock while the
thread is still in native code.
"""

import asyncio
import enum
import logging
import threading
import time
from collections.abc import Callable

from engine import AbortFlag

from ..errors import QueueFullError, UnavailableError
from .deadlines import Deadline
from .fair_queue import FairQueue

_logger = logging.getLogger(__name__)

_JOIN_SECONDS = 30.0


class _WatchedFlag(AbortFlag):
    """Each look at it is a sign of life: the engine looks before every token and every chunk of a
    prompt, and nobody else does.
    """

    def __init__(self, lease: "EngineLease") -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        self._lease.heartbeat += 1  # no call: this is done for every token
        return self._is_set


class Ticket:
    """A place in the queue, then the engine itself, until the work returns."""

    __slots__ = (
        "_lease", "abort", "admitted_at", "cancelled_at", "deadline", "freed_at", "key",
        "queued_at", "refuse", "released", "work",
    )  # fmt: skip

    def __init__(
        self,
        lease: "EngineLease",
        work: Callable[[AbortFlag], None],
        refuse: Callable[[Exception], None],
        released: Callable[[], None],
        key: str,
        deadline: Deadline | None,
        queued_at: float,
    ) -> None:
        self._lease = lease
        self.work = work
        self.refuse = refuse
        self.released = released
        self.key = key
        self.deadline = deadline
        self.abort: AbortFlag = _WatchedFlag(lease)
        # Seconds of the lease's clock, here and below.
        self.queued_at = queued_at
        self.admitted_at: float | None = None
        """When it came to run."""
        self.cancelled_at: float | None = None
        """When it was first told to end."""
        self.freed_at: float | None = None
        """When it had left: the queue, or the engine."""

    def cancel(self) -> bool:
        """Give the place up; harmless when the work is done. Whether the work will never run."""
        return self._lease.cancel(self)

    def withdraw(self) -> bool:
        """Give the place up if it is still one in the queue. Whether it was."""
        return self._lease.withdraw(self)


class _State(enum.Enum):
    CLOSED = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()  # those in the queue are served, nobody else
    LOST = enum.auto()  # for good


class EngineLease:
    """Tickets that wait in turn, and the engine thread that serves them."""

    def __init__(
        self,
        *,
        max_queue: int,
        thread_name: str = "engine",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_queue`: how many may wait while one runs."""
        self._max_queue = max_queue
        self._thread_name = thread_name
        self._clock = clock
        self._changed = threading.Condition()  # guards all that follows
        self._queue: FairQueue[Ticket] = FairQueue()
        self._running: Ticket | None = None
        self._state = _State.CLOSED
        self._thread: threading.Thread | None = None
        self.heartbeat = 0
        """Grows with every ticket, and whenever its abort flag is looked at."""
        self.on_failed: Callable[[], None] = lambda: None
        """Called once when the engine is lost, after everybody has been told."""

    @property
    def ready(self) -> bool:
        """Whether a ticket submitted now would be served."""
        return self._state is _State.OPEN and self._thread is not None and self._thread.is_alive()

    @property
    def n_waiting(self) -> int:
        return len(self._queue)

    @property
    def running(self) -> Ticket | None:
        """The ticket whose work the engine thread does now."""
        return self._running

    @property
    def busy(self) -> bool:
        """Whether the engine thread is inside a ticket's work."""
        return self._running is not None

    def position(self, ticket: Ticket) -> int | None:
        """How many would be served before it; None: it does not wait."""
        with self._changed:
            return self._queue.position(ticket.key, ticket)

    def start(self) -> None:
        """Start the engine thread. A lease whose engine is lost stays as it is."""
        with self._changed:
            if self._state is _State.LOST:
                return
            self._state = _State.OPEN
        self._thread = threading.Thread(target=self._serve, name=self._thread_name, daemon=True)
        self._thread.start()

    def stop_admitting(self) -> None:
        """Refuse newcomers; those who wait are served."""
        with self._changed:
            if self._state is _State.OPEN:
                self._state = _State.DRAINING

    async def close(self, *, seconds: float = _JOIN_SECONDS) -> bool:
        """Refuse all who wait, abort the one that runs, and wait for the engine thread to end.

        Whether it has: then the engine is the caller's. One that is lost is nobody's. Whoever runs
        and does not leave within `seconds` is refused too.
        """
        with self._changed:
            if self._state is _State.LOST:
                return False
            self._state = _State.CLOSED
            refused = self._clear_queue()
            self._abort_running()
            self._changed.notify_all()
        for ticket in refused:
            ticket.refuse(UnavailableError("the server is shutting down"))
        if self._thread is None:
            return True
        await asyncio.to_thread(self._thread.join, seconds)
        running = self._running
        if running is not None:
            running.refuse(UnavailableError("the server is shutting down"))
        return not self._thread.is_alive()

    def fail(self, error: Exception) -> None:
        """The engine is lost, and the process should end. From any thread.

        All are refused with `error`, also the one that runs, although the engine may never leave
        its work; nobody is let in behind it. Does nothing the second time.
        """
        with self._changed:
            if self._state is _State.LOST:
                return
            self._state = _State.LOST
            refused = self._clear_queue()
            if self._running is not None:
                refused.append(self._running)
            self._abort_running()
            self._changed.notify_all()
        try:
            for ticket in refused:
                ticket.refuse(error)
        finally:
            self.on_failed()

    def submit(
        self,
        work: Callable[[AbortFlag], None],
        *,
        refuse: Callable[[Exception], None],
        released: Callable[[], None] = lambda: None,
        key: str = "",
        deadline: Deadline | None = None,
    ) -> Ticket:
        """Queue `work(abort)` for the engine thread; `key` is who asks.

        Either `released()` is called there behind it, when the next request finds the engine free;
        or `refuse(error)`, on any thread: when the lease closes first, when it is the ticket's turn
        only after its deadline, when another key has the place, when the engine is lost. Neither is
        for a ticket that was given up. Raises QueueFullError and UnavailableError.
        """
        ticket = Ticket(self, work, refuse, released, key, deadline, self._clock())
        with self._changed:
            if self._state is _State.DRAINING:
                raise UnavailableError("the server is shutting down")
            if not self.ready:
                raise UnavailableError("the engine takes no work at the moment")
            displaced = self._make_room(key)
            self._queue.append(key, ticket)
            self._changed.notify_all()
        if displaced is not None:
            displaced.refuse(
                QueueFullError("the queue is full, and most who wait in it have the same key")
            )
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        with self._changed:
            if ticket.freed_at is None:
                self._abort(ticket)
            return self._leave(ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        with self._changed:
            return self._leave(ticket)

    # What follows, up to the engine thread, is called with the lock held.

    def _make_room(self, key: str) -> Ticket | None:
        """Who loses a place to a newcomer, if it takes that. Raises QueueFullError."""
        if self.n_waiting + self.busy <= self._max_queue:
            return None
        displaced = self._queue.displace(key)
        if displaced is not None:
            displaced.freed_at = self._clock()
            return displaced
        if self._max_queue == 0:
            raise QueueFullError("the engine is busy, and this server lets nobody wait for it")
        raise QueueFullError(f"{self._max_queue} requests wait for the engine, as many as may wait")

    def _leave(self, ticket: Ticket) -> bool:
        waited = self._queue.remove(ticket.key, ticket)
        if waited:
            ticket.cancelled_at = ticket.freed_at = self._clock()
        return waited

    def _clear_queue(self) -> list[Ticket]:
        tickets = self._queue.clear()
        for ticket in tickets:
            ticket.freed_at = self._clock()
        return tickets

    def _abort_running(self) -> None:
        if self._running is not None:
            self._abort(self._running)

    def _abort(self, ticket: Ticket) -> None:
        if ticket.cancelled_at is None:
            ticket.cancelled_at = self._clock()
        ticket.abort.set()

    # The engine thread.

    def _serve(self) -> None:
        try:
            while (ticket := self._next()) is not None:
                if ticket.admitted_at is None:
                    assert ticket.deadline is not None
                    ticket.refuse(ticket.deadline.error)
                else:
                    self._serve_one(ticket)
        except BaseException:  # what no work may survive: SystemExit, a dying interpreter
            _logger.critical("the %s thread has died", self._thread_name, exc_info=True)
            self.fail(UnavailableError("the engine has stopped"))

    def _next(self) -> Ticket | None:
        """Whose turn it is; not admitted if it comes too late for it. None: no more is served."""
        with self._changed:
            while not self._queue and self._state in (_State.OPEN, _State.DRAINING):
                self._changed.wait()
            if self._state not in (_State.OPEN, _State.DRAINING):
                return None
            ticket, now = self._queue.pop(), self._clock()
            if ticket.deadline is not None and now >= ticket.deadline.at:
                ticket.cancelled_at = ticket.freed_at = now
            else:
                ticket.admitted_at = now
                self._running = ticket
                self.heartbeat += 1
            return ticket

    def _serve_one(self, ticket: Ticket) -> None:
        try:
            ticket.work(ticket.abort)
        except Exception:
            _logger.exception("a ticket's work must not raise")
        with self._changed:
            self._running = None
            ticket.freed_at = self._clock()
            was_refused = self._state is _State.LOST
        if not was_refused:
            ticket.released()
