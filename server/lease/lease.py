"""Who may use the engine: one request at a time, in turn, and none after its deadline.

The lease owns the queue and the one engine thread. A ticket is work for that thread. The thread
takes the next ticket only after the work of the last one has returned, so no cancellation can let
two callers into the engine. Cancelling a waiting ticket removes it at once; cancelling the running
one sets its abort flag, and the engine stops at its next step.

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

from ..errors import EngineFailedError, LoadFailedError, QueueFullError, UnavailableError
from .deadlines import Deadline
from .model_queue import ModelQueue
from .served_model import ServedModel
from .shelf import Shelf

_logger = logging.getLogger(__name__)

_JOIN_SECONDS = 30.0


class _WatchedFlag(AbortFlag):
    """Counts each check as a heartbeat: only the engine checks the flag, before every token and
    every chunk of a prompt.
    """

    def __init__(self, lease: "EngineLease") -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        self._lease.heartbeat += 1  # inline, because it runs for every token
        return self._is_set


class Ticket:
    """A place in the queue, then the engine itself, until the work returns."""

    __slots__ = (
        "_lease", "abort", "admitted_at", "cancelled_at", "deadline", "freed_at", "key", "model",
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
        model: ServedModel | None = None,
    ) -> None:
        self._lease = lease
        self.model = model
        self.work = work
        self.refuse = refuse
        self.released = released
        self.key = key
        self.deadline = deadline
        self.abort: AbortFlag = _WatchedFlag(lease)
        # All times are seconds of the lease's clock.
        self.queued_at = queued_at
        self.admitted_at: float | None = None
        """When it began to run."""
        self.cancelled_at: float | None = None
        """When it was first cancelled."""
        self.freed_at: float | None = None
        """When it left the queue without running, or the engine."""

    def cancel(self) -> bool:
        """Give up the place, or abort the work; harmless when it is done. Returns whether the work
        will never run.
        """
        return self._lease.cancel(self)

    def withdraw(self) -> bool:
        """Give up the place if it is still in the queue. Returns whether it was."""
        return self._lease.withdraw(self)


class _State(enum.Enum):
    CLOSED = enum.auto()
    OPEN = enum.auto()
    DRAINING = enum.auto()  # only serves what is in the queue
    LOST = enum.auto()  # permanently


class EngineLease:
    """The queue of tickets, and the engine thread that serves them."""

    def __init__(
        self,
        *,
        max_queue: int,
        thread_name: str = "engine",
        shelf: Shelf | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_queue`: how many tickets may wait while one runs. `shelf`: holds the models of the
        tickets.
        """
        self._max_queue = max_queue
        self._shelf = Shelf(()) if shelf is None else shelf
        self._thread_name = thread_name
        self._clock = clock
        self._changed = threading.Condition()  # guards the fields below
        self._queue: ModelQueue[ServedModel | None, Ticket] = ModelQueue(self._shelf.is_free)
        self._running: Ticket | None = None
        self._state = _State.CLOSED
        self._thread: threading.Thread | None = None
        self.heartbeat = 0
        """Grows with every ticket, and whenever its abort flag is checked."""
        self.on_failed: Callable[[], None] = lambda: None
        """Called once when the engine is lost, after every ticket has been refused."""

    @property
    def ready(self) -> bool:
        """Whether a ticket submitted now would be served."""
        return self._state is _State.OPEN and self._thread is not None and self._thread.is_alive()

    @property
    def n_waiting(self) -> int:
        return len(self._queue)

    def n_waiting_for(self, model: ServedModel) -> int:
        with self._changed:
            return self._queue.n_waiting(model)

    @property
    def running(self) -> Ticket | None:
        """The ticket whose work the engine thread does now."""
        return self._running

    @property
    def busy(self) -> bool:
        """Whether the engine thread is inside a ticket's work."""
        return self._running is not None

    @property
    def is_computing(self) -> bool:
        """Whether it is inside a ticket's work, and not still bringing the model into memory: a
        large file can be read for minutes without a sign of life.
        """
        return self._running is not None and not self._shelf.is_loading

    def position(self, ticket: Ticket) -> int | None:
        """How many would be served before it; None if it does not wait."""
        with self._changed:
            return self._queue.position(ticket.model, ticket.key, ticket)

    def n_before(self, key: str, model: ServedModel | None) -> int:
        """How many would be served before a request of `key` for the model that came now, the
        running one too.
        """
        probe = Ticket(self, lambda _: None, lambda _: None, lambda: None, key, None, 0.0, model)
        with self._changed:
            self._queue.append(model, key, probe)
            position = self._queue.position(model, key, probe)
            self._queue.remove(model, key, probe)
        assert position is not None
        return position + self.busy

    def start(self) -> None:
        """Start the engine thread. A lease whose engine is lost stays as it is."""
        with self._changed:
            if self._state is _State.LOST:
                return
            self._state = _State.OPEN
        self._thread = threading.Thread(target=self._serve, name=self._thread_name, daemon=True)
        self._thread.start()

    def stop_admitting(self) -> None:
        """Refuse new tickets; those that wait are still served."""
        with self._changed:
            if self._state is _State.OPEN:
                self._state = _State.DRAINING
                self._changed.notify_all()

    async def close(self, *, seconds: float = _JOIN_SECONDS) -> bool:
        """Refuse all waiting tickets, abort the running one, and wait for the engine thread to end.

        A running ticket that does not stop within `seconds` is refused too. Returns whether the
        thread has ended: only then may the caller use the engine. False for a lost engine.
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

        Refuses all tickets with `error`, even the running one, although the engine may never return
        from its work; nothing runs after it. Does nothing the second time.
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
        model: ServedModel | None = None,
    ) -> Ticket:
        """Queue `work(abort)` for the engine thread; `key` identifies the caller. `model`: whose
        weights the work needs; without them, `refuse` is called with a LoadFailedError.

        Afterwards `released()` is called on that thread, once the engine is free for the next
        request. Or `refuse(error)` is called, on any thread: if the lease closes first, if the turn
        comes only after the deadline, if another key takes the place, or if the engine is lost.
        Neither is called for a cancelled ticket that never ran. Raises QueueFullError and
        UnavailableError.
        """
        ticket = Ticket(self, work, refuse, released, key, deadline, self._clock(), model)
        with self._changed:
            if self._state is _State.DRAINING:
                raise UnavailableError("the server is shutting down")
            if not self.ready:
                raise UnavailableError("the engine takes no work at the moment")
            displaced = self._make_room(model, key)
            self._queue.append(model, key, ticket)
            self._changed.notify_all()
        if displaced is not None:
            displaced.refuse(
                QueueFullError("the queue is full, and most requests in it have the same key")
            )
        return ticket

    def aside(self, key: str) -> Ticket:
        """A ticket that is not in the queue, of work that was put down."""
        now = self._clock()
        ticket = Ticket(self, lambda _: None, lambda _: None, lambda: None, key, None, now)
        ticket.freed_at = now
        return ticket

    def cancel(self, ticket: Ticket) -> bool:
        with self._changed:
            if ticket.freed_at is None:
                self._abort(ticket)
            return self._leave(ticket)

    def withdraw(self, ticket: Ticket) -> bool:
        with self._changed:
            return self._leave(ticket)

    # The methods below, up to the engine thread's, are called with the lock held.

    def _make_room(self, model: ServedModel | None, key: str) -> Ticket | None:
        """Makes room for a new ticket. Returns the ticket that loses its place for it, if any.

        Raises QueueFullError.
        """
        if self.n_waiting + self.busy <= self._max_queue:
            return None
        displaced = self._queue.displace(model, key)
        if displaced is not None:
            displaced.freed_at = self._clock()
            return displaced
        if self._max_queue == 0:
            raise QueueFullError("the engine is busy, and this server has no queue")
        raise QueueFullError(f"{self._max_queue} requests wait for the engine, as many as may wait")

    def _leave(self, ticket: Ticket) -> bool:
        waited = self._queue.remove(ticket.model, ticket.key, ticket)
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

    # The methods below run on the engine thread.

    def _serve(self) -> None:
        try:
            self._shelf.warm_up()
            while self._waited():
                ticket = self._next()
                if ticket is None:
                    self._shelf.rest()
                    continue
                if ticket.admitted_at is None:
                    assert ticket.deadline is not None
                    ticket.refuse(ticket.deadline.error)
                else:
                    self._serve_one(ticket)
        except BaseException:  # SystemExit, or an interpreter that is shutting down
            _logger.critical("the %s thread has died", self._thread_name, exc_info=True)
            self.fail(UnavailableError("the engine has failed"))

    def _waited(self) -> bool:
        """Wait for a ticket whose turn it is, or until a model has been idle. False: the lease is
        closed or lost.
        """
        with self._changed:
            if self._is_serving and not self._queue.has_next(may_swap=self._may_swap):
                ends = [self._shelf.rest_in(), self._shelf.turn_left if self._queue else None]
                self._changed.wait(min((s for s in ends if s is not None), default=None))
            return self._is_serving

    @property
    def _may_swap(self) -> bool:
        """Whether a model's turn may end. Nothing comes for it any more while the server ends."""
        return not self._shelf.turn_left or self._state is _State.DRAINING

    @property
    def _is_serving(self) -> bool:
        return self._state in (_State.OPEN, _State.DRAINING)

    def _next(self) -> Ticket | None:
        """The next ticket, not admitted if its deadline has passed; None if there is none."""
        with self._changed:
            ticket = self._queue.pop(may_swap=self._may_swap) if self._is_serving else None
            if ticket is None:
                return None
            now = self._clock()
            if ticket.deadline is not None and now >= ticket.deadline.at:
                ticket.cancelled_at = ticket.freed_at = now
            else:
                ticket.admitted_at = now
                self._running = ticket
                self.heartbeat += 1
            return ticket

    def _serve_one(self, ticket: Ticket) -> None:
        failure: Exception | None = None
        try:
            failure = self._missing(ticket.model)
            if failure is None:
                ticket.work(ticket.abort)
                self._shelf.used(ticket.model)
        except Exception:
            _logger.exception("a ticket's work must not raise")
        with self._changed:
            self._running = None
            ticket.freed_at = self._clock()
            was_refused = self._state is _State.LOST
        if was_refused:
            return
        if failure is None:
            ticket.released()
        else:
            ticket.refuse(failure)

    def _missing(self, model: ServedModel | None) -> Exception | None:
        """Bring a model into memory. Returns why that did not work."""
        if model is None:
            return None
        try:
            self._shelf.bring(model, self._check_serving)
        except (LoadFailedError, UnavailableError) as error:
            return error
        except Exception as error:
            _logger.exception("loading a model failed in an unexpected way")
            return EngineFailedError(f"{model.name} could not be loaded: {type(error).__name__}")
        return None

    def _check_serving(self, _done: int, _total: int) -> None:
        """Called while weights are read: that must not outlast the server. Raises
        UnavailableError.
        """
        self.heartbeat += 1
        if not self._is_serving:
            raise UnavailableError("the server is shutting down")
