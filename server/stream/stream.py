"""One request in the engine: runs its jobs one after another and reports them as events.

Owns a request's way through the lease, and what it counts and times on the way. Knows the engine's
types and no shape of an answer.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from engine import (
    AbortFlag,
    EngineError,
    Snapshot,
)

from ..errors import (
    DeadlineError,
    EngineFailedError,
    LoadFailedError,
    ServerError,
    UnavailableError,
    UnreadLimitError,
    is_out_of_memory,
)
from ..lease.deadlines import NO_LIMITS, Deadline, Deadlines, TimeLimits
from ..lease.lease import EngineLease, Ticket
from ..lease.served_model import ServedModel
from ..lease.waiter import attended
from .endings import ended_piece, with_stop_string
from .feed import Feed, FeedFullError
from .job_run import JobRun
from .jobs import (
    Clocks,
    CompletionJob,
    Event,
    JobEnd,
    Step,
    TokenCounts,
    event_bytes,
)
from .pause import Past, Pause, Run
from .steering import Call, Steering
from .totals import with_job, with_times

_logger = logging.getLogger(__name__)

T = TypeVar("T")

# How often `left` looks. It waits only for the next step of a stream whose reader has gone.
_LOOK_S = 0.005


class CompletionStream:
    """A request in the queue, in the engine, then done. Its events can be read at any time.

    Made on the event loop. Raises what EngineLease.submit raises.
    """

    def __init__(
        self,
        jobs: Sequence[CompletionJob],
        model: ServedModel,
        lease: EngineLease,
        *,
        key: str = "",
        request_id: str = "",
        limits: TimeLimits = NO_LIMITS,
        since: float | None = None,
        max_unread_bytes: float = math.inf,
        is_steered: bool = False,
        pause: Pause | None = None,
        on_ended: Callable[["CompletionStream"], None] = lambda _: None,
        on_told: Callable[["CompletionStream"], None] = lambda _: None,
    ) -> None:
        """`key`: identifies the caller; see EngineLease.submit. Cached prompts serve only their
        own key.
        `request_id`: for the log.
        `since`: when the request began to wait, for the limits; None means now.
        `max_unread_bytes`: about how much memory unread events may take.
        `is_steered`: whether `steer` may be called. `pause`: it begins as it was put down, out of
        the queue, and a call of `steer` takes it up.
        `on_ended` is called on the engine thread once the counts are final, before the reader gets
        the end; then `on_told`, before the next request is admitted. Neither is called for a
        request that was never admitted.
        """
        self.jobs = tuple(jobs)
        self.counts = TokenCounts()
        """Final once the stream has ended, as are the clocks."""
        self.clocks = Clocks()
        self.ends: tuple[JobEnd, ...] = ()
        self.error: Exception | None = None
        """The error that ended the stream, if any."""
        self.was_abandoned = False
        """Whether its reader left before the engine was done."""
        self.request_id = request_id
        self._key = key
        self._steering: Steering[JobRun] | None = Steering() if is_steered else None
        self._job_run: JobRun | None = None  # the running or the paused one
        self._is_down = False
        self._is_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._lease = lease
        self.places: dict[int, Snapshot] = {}
        """Where the jobs ended, by position, if it is steered."""
        self._on_ended = on_ended
        self._on_told = on_told
        self.model = model
        self._generator = model.engine.generator
        self._feed: Feed[Event] = Feed(size_of=event_bytes, max_bytes=max_unread_bytes)
        self._ending: Sequence[Event] = ()  # last events of the previous job, not yet in the feed
        self._has_token = False
        self._late: Exception | None = None  # the deadline's error, if one aborted the engine
        self._past = Past()  # before the running job
        self.on_put_down: Callable[[], None] = lambda: None
        """Called on the event loop when it has given the engine away, to go on later."""
        self._queued_at = time.perf_counter()
        self._deadlines = Deadlines(limits, since=since)
        if pause is not None:
            self.ticket = lease.aside(key)
            self._take_over(pause)
            return
        self.ticket = self._queue(self._deadlines.first)
        self._deadlines.watch(self._deadlines.queue, self._leave_queue)
        self._deadlines.watch(self._deadlines.first_token, self._miss_first_token)
        self._deadlines.watch(self._deadlines.request, self._cut_off)

    @property
    def is_paused(self) -> bool:
        """Whether it gives the engine away, to go on later."""
        return self._job_run is not None and self._job_run.is_paused

    @property
    def paused_at(self) -> tuple[Snapshot, list[Step]] | None:
        """Where the running job was paused, and its steps so far; None while it has the engine."""
        return self._job_run.paused_at if self._is_down and self._job_run is not None else None

    @property
    def n_waiting(self) -> int:
        """Calls of `steer` that wait for the next gap between two tokens."""
        return 0 if self._steering is None else len(self._steering.waiting)

    @property
    def is_down(self) -> bool:
        """Whether it is neither in the queue nor in the engine, and can be taken up again."""
        return self._is_down

    def pause(self, events: Sequence[Event]) -> Pause:
        """What another process needs to take it up, if it `is_down`. `events`: all so far."""
        run, places = self._job_run, dict(self.places)
        if run is None:
            return Pause(Past(self.counts, self.clocks, self.ends), Run(), places, events)
        return Pause(self._past, run.put_down, places, events)

    def leave_queue(self) -> None:
        """If it waits for the engine, be down instead."""
        if self.ticket.withdraw():
            self._deadlines.stop()
            self._is_down = True
            if self._steering is not None:
                self._steering.refuse(UnavailableError("the server is shutting down"))

    async def steer(self, work: Callable[[JobRun], Any], receive: Receive) -> Any:
        """The result of `work`, which is called on the engine thread before the next token; for a
        paused stream as soon as the engine is free. Raises StreamStateError if it has ended, and
        what `work` raises.
        """
        assert self._steering is not None, "it was begun to be steered"
        call = Call(work)
        self._steering.add(call)
        if self._is_down:
            self._take_up()
        return await attended(call.result, receive)

    def cancel(self) -> None:
        """Leave the queue, or abort the engine at its next step. Harmless when done."""
        self._is_cancelled = True
        self._deadlines.stop()
        self.was_abandoned |= self.ticket.freed_at is None or self._is_down
        paused_at = self.paused_at
        if paused_at is not None:
            self.places[len(self.ends)] = paused_at[0]
        if self.ticket.cancel() or self._is_down:
            self._is_down = False
            self._refuse(ClientDisconnect())

    @property
    def unread_bytes(self) -> int:
        """About how much memory the unread events take."""
        return self._feed.unread_bytes

    def give_up(self, error: Exception) -> None:
        """Cancel, and drop what is unread: a reader gets `error` next."""
        self._feed.give_up(error)
        self.cancel()

    def results(self, *, idle: float | None = None) -> AsyncIterator[Sequence[Event]]:
        """Take all events, each once, in batches of what has come since the last one.

        Yields an empty sequence after `idle` seconds without events. After the last event, raises
        the error that ended the stream, if any.
        """
        return self._feed.batches(idle=idle)

    def ends_with(self, event: Event) -> bool:
        """Whether the event is the last one, unless an error ends the stream first."""
        is_end = isinstance(event, Step) and event.result.eos
        return is_end and event.choice == self.jobs[-1].index

    async def started(self, receive: Receive) -> None:
        """Wait for the first event, so that an error before it can still be an HTTP status.

        Cancels the stream and raises ClientDisconnect when the client hangs up first.
        """
        await self._attended(self._feed.begun(), receive)

    async def collected(self, receive: Receive) -> list[Event]:
        """Wait for all events of the stream. Cancels like `started`."""
        events = await self._attended(self._feed.whole(), receive)
        self._deadlines.stop()
        return events

    async def left(self) -> None:
        """Wait until the stream has left the queue or the engine: then its counts are final."""
        while self.ticket.freed_at is None:
            await asyncio.sleep(_LOOK_S)

    def _queue(self, deadline: Deadline | None) -> Ticket:
        return self._lease.submit(
            self._run,
            refuse=self._refuse,
            released=self._tell_end,
            key=self._key,
            deadline=deadline,
            model=self.model,
        )

    def _take_over(self, pause: Pause) -> None:
        self.counts, self.clocks, self.ends = self._past = pause.past
        self.places.update(pause.places)
        self._queued_at -= max((event.clock for event in pause.events), default=0.0)
        self._job_run = self._new_run(self.jobs[len(self.ends)])
        self._job_run.take_up(pause)
        self._is_down = True

    def _put_down(self) -> None:
        self._is_down = True
        self._deadlines.stop()
        if self._is_cancelled:  # while it gave the engine away: nobody else would end it
            self.cancel()
        elif self._steering is not None and self._steering.waiting:
            self._take_up()
        else:
            self.on_put_down()

    def _take_up(self) -> None:
        self._is_down = False
        try:
            self.ticket = self._queue(None)
        except ServerError as error:
            self._is_down = True
            assert self._steering is not None
            self._steering.refuse(error)

    def _stay_down(self, error: LoadFailedError) -> None:
        """It was to be taken up, but its model could not be loaded: that ends only the attempt."""
        self._is_down = True
        assert self._steering is not None
        self._steering.refuse(error)

    async def _attended(self, work: Coroutine[Any, Any, T], receive: Receive) -> T:
        try:
            return await attended(work, receive)
        except BaseException:
            self.cancel()
            raise

    def _leave_queue(self, late: ServerError) -> None:
        if self.ticket.withdraw():
            self._refuse(late)

    def _miss_first_token(self, late: ServerError) -> None:
        run = self._job_run
        if not self._has_token and not (run is not None and run.has_token):
            self._cut_off(late)

    def _cut_off(self, late: ServerError) -> None:
        self._late = late
        if self.ticket.cancel():
            self._refuse(late)

    def _refuse(self, error: Exception) -> None:
        """On any thread."""
        if isinstance(error, LoadFailedError) and self._job_run is not None:
            self._loop.call_soon_threadsafe(self._stay_down, error)
            return
        self.error = error
        if self._steering is not None:
            self._steering.close()
        self._feed.end(error=error)

    # The methods below run on the engine thread.

    def _run(self, abort: AbortFlag) -> None:
        if self._job_run is None:
            self.clocks = Clocks(queued_s=self._clock())
        paused = False
        try:
            paused = not self._work(abort)
        except (EngineError, UnavailableError, DeadlineError) as error:
            self.error = error
        except FeedFullError:
            self.error = UnreadLimitError(
                "more of the answer is unread than the server keeps; read it while it is "
                "generated, with stream: true, or ask for less"
            )
        except BaseException as error:  # from a library: no request may end this thread
            if is_out_of_memory(error):
                _logger.warning("out of memory in request %s: %s", self.request_id, error)
                self.error = MemoryError(str(error))
            else:
                _logger.exception("the engine failed in request %s", self.request_id)
                self.error = EngineFailedError("the engine failed in this request")
        finally:
            if not paused:
                self._on_ended(self)

    def _work(self, abort: AbortFlag) -> bool:
        """The jobs that are left, one after another. The last events are left in `_ending`. False:
        one of them has been paused.
        """
        while len(self.ends) < len(self.jobs):
            self._feed.extend(self._ending)
            self._ending = ()
            if not self._generate(len(self.ends), abort):
                return False
        return True

    def _tell_end(self) -> None:
        """Report the end only when the engine is free: its reader may send another request."""
        run = self._job_run
        if run is not None and run.is_paused and self.error is None:
            self._loop.call_soon_threadsafe(self._put_down)
            return
        if self._steering is not None:
            self._steering.close()
        self._feed.end(self._ending, error=self.error)
        self._on_told(self)

    def _clock(self) -> float:
        return time.perf_counter() - self._queued_at

    def _generate(self, position: int, abort: AbortFlag) -> bool:
        """Report all events of a job but the last ones, which `_ending` gets. False: it has been
        paused.
        """
        job = self.jobs[position]
        run = self._job_run
        if run is None:
            self._past = Past(self.counts, self.clocks, self.ends)
            run = self._job_run = self._new_run(job)
        try:
            if not run.go(abort):
                return False
        finally:
            self._has_token |= run.has_token
        if self._steering is not None:
            self.places[position] = run.stream.snapshot()
        begun, first_clock, piece = run.begun, run.first_clock, run.last_step
        assert begun is not None
        assert first_clock is not None
        assert piece is not None
        drafts = self._generator.draft_counts
        is_new = not position or self.jobs[position - 1].input_ids is not job.input_ids
        self.counts = with_job(
            self.counts,
            begun.prefill if is_new else None,
            drafts,
            n_completion=self._generator.n_completion_tokens,
            n_drafted=run.n_drafted,
            n_accepted=run.n_accepted,
        )
        self.clocks = with_times(self.clocks, run.start, begun.clock, first_clock, piece.clock)
        result = piece.result
        is_aborted = result.eos_reason == "aborted"
        ended_by = run.ended_by if is_aborted else None
        reason = ended_by or str(result.eos_reason)
        self.ends = (*self.ends, JobEnd(reason, begun.prefill.reuse, drafts))
        if ended_by is not None:
            piece = ended_piece(piece, ended_by)
        elif job.include_stop and result.stop_string is not None:
            piece = with_stop_string(piece, run.n_shown)
        elif is_aborted:
            # A client that hung up does not read this; all others were cut off by the server.
            raise self._late or UnavailableError("the server is shutting down")
        self._ending = [*run.untold, piece]
        self._job_run = None
        return True

    def _new_run(self, job: CompletionJob) -> JobRun:
        return JobRun(
            job,
            self._generator,
            self._feed,
            key=self._key,
            clock=self._clock,
            steering=self._steering,
        )
