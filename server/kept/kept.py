"""One kept answer: its streams, its events, and the walk that fills both.

Owns the state of a stream for those who ask later. The walk is that of any request; here it is read
to its end whoever is connected, or put down for a later process. Used on the event loop.
"""

import asyncio
import logging
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from engine import EngineError, Snapshot

from ..answer.shape import Answer, Encoder
from ..answer.sse import error_event
from ..errors import (
    ServerError,
    StreamCancelledError,
    StreamStateError,
    TooManyControlsError,
    UnavailableError,
    UnreadLimitError,
    contained,
    error_body,
    is_callers_own,
)
from ..lease.waiter import attended, nobody
from ..stream.job_run import JobRun
from ..stream.jobs import Begun, Controlled, Event, Step
from ..stream.pause import Pause
from ..stream.stream import CompletionStream
from .controls import Control, pause
from .log import EventLog, parts_of
from .pauses import pause_from_bytes
from .streams import KeptStream, Packed, Request
from .unpacking import undamaged

_logger = logging.getLogger(__name__)

State = Literal["queued", "prefilling", "running", "paused", "ended"]

# What an entry takes besides what is counted.
_OWN_BYTES = 4096
# Controls of one stream that may wait for its next token.
_MAX_WAITING = 64
# Latest controls whose events are remembered for those who asked for them.
_MAX_TOLD = 4 * _MAX_WAITING
_LOOK_S = 0.001
UNBEGUN = "the stream was paused before its first token: resume it"
SHUT_DOWN = "the server was shut down"


class Kept:
    """One answer. `start` begins its walk; its events are in `log`."""

    def __init__(
        self,
        id_: str,
        request: Request,
        streams: Sequence[KeptStream],
        *,
        log: EventLog | None = None,
        paused: bytes = b"",
    ) -> None:
        """`log`: its events so far. `paused`: what `pauses` made of it, if it was put down; `go_on`
        then goes on with its walk.
        """
        self.id = id_
        self.request = request
        self.streams = tuple(streams)
        self.log = log or EventLog()
        self.begun_ns = 0
        """When it was begun, in Unix time; no two are the same."""
        self.metadata: dict[str, str] = {}
        self.error: Exception | None = None
        """The error that ended it, if one did."""
        self.reason: str | None = None
        """In words, why an error ended it, or who paused it if no client did."""
        self.whole = b""
        """The whole answer as JSON, in zlib; b"" until it has ended well."""
        self.on_rest: Callable[[], None] = lambda: None
        """Called when it has ended, and when it has been put down."""
        self.going_on = asyncio.Lock()
        """Held by who calls `go_on`."""
        self._paused = paused
        self._events: list[Event] = []
        self._controls: deque[tuple[Controlled, int]] = deque(maxlen=_MAX_TOLD)
        self._running: CompletionStream | None = None
        self._cancelled: Exception | None = None
        self.error_event: Callable[[Exception], bytes] = error_event
        """Its last event if it fails: OpenAI's, until its walk begins."""
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return self.log.ended

    @property
    def running(self) -> CompletionStream | None:
        """Its walk; None before it and after its end."""
        return self._running

    @property
    def is_put_down(self) -> bool:
        """Whether an earlier process has put it down, and nobody has taken it up since."""
        return bool(self._paused) and not self.ended

    @property
    def n_bytes(self) -> int:
        """About how much memory it takes."""
        n_bytes = _OWN_BYTES + len(self.request.body) + len(self.whole) + self.log.n_bytes
        n_bytes += len(self._paused)
        for stream in self.streams:
            n_bytes += stream.n_bytes + 8 * len(stream.prompt_ids)
        return n_bytes + sum(len(name) + len(value) for name, value in self.metadata.items())

    @property
    def current(self) -> KeptStream:
        """The first of its streams that has not ended, or the last one."""
        return next((each for each in self.streams if each.finish is None), self.streams[-1])

    def state(self, stream: KeptStream) -> State:
        if stream.finish is not None or self.ended:
            return "ended"
        running, is_current = self._running, stream is self.current
        if is_current and (self._paused or (running is not None and running.is_paused)):
            return "paused"
        if stream.begun is not None:
            return "running"
        is_admitted = running is not None and running.ticket.admitted_at is not None
        return "prefilling" if is_current and is_admitted else "queued"

    def start(self, stream: CompletionStream, answer: Answer, *, max_bytes: int) -> None:
        """Read the stream to its end. `max_bytes`: for its steps, as they are before the end."""
        self._start(stream, answer, contained(answer.encoder), max_bytes)

    def pause(self) -> Pause:
        """What a stream needs that goes on where this one `is_put_down`. Raises StreamStateError if
        it is damaged.
        """
        at = self.current
        places = {each.index: each.place for each in self.streams[: at.index]}
        known = {index: place for index, place in places.items() if place is not None}
        with undamaged():
            return pause_from_bytes(self._paused, known, at.place)

    def go_on(
        self, stream: CompletionStream, pause: Pause, answer: Answer, *, max_bytes: int
    ) -> None:
        """Go on with the walk of `pause`, whose `stream` is down."""
        encoder = contained(answer.encoder)
        contained(encoder.frames, pause.events)  # up to where it was
        begun = {event.choice: event for event in pause.events if isinstance(event, Begun)}
        for each in self.streams:
            each.begun = begun.get(each.index)
            each.unpack(keeps_steps=each.begun is not None)
        self._events, self._paused = list(pause.events), b""
        self._start(stream, answer, encoder, max_bytes)

    def leave(self) -> None:
        """The client that asked for it has left."""
        if not self.request.is_background:
            text = (
                "the client that began the stream has hung up, and without background: true a "
                "stream ends with its client"
            )
            self.cancel(StreamCancelledError(text))

    def cancel(self, error: Exception) -> None:
        """End it with `error`. Harmless when it has ended."""
        if self._running is not None:
            self._cancelled = self._cancelled or error
            self._running.cancel()
        elif self.is_put_down:
            self._fail(error)
            self._finish()

    async def control(
        self, stream: KeptStream, control: Control, receive: Receive
    ) -> tuple[Controlled, int]:
        """Do it before the next token of `stream`. Returns the event that says so, and its number.
        Raises StreamStateError, TooManyControlsError, and what the control raises.
        """

        def unless_stopped(run: JobRun) -> Controlled:
            if run.ended_by is not None:  # in this gap
                raise StreamStateError("the stream has been stopped")
            return control(run)

        done = await self.between_tokens(stream, unless_stopped, receive)
        while True:
            n_events = self.log.n_events
            for event, number in self._controls:
                if event is done:
                    return event, number
            if self.ended:
                raise self._ended_error(stream)
            await attended(self.log.changed(n_events), receive)

    def ended_at(self, stream: KeptStream) -> Snapshot | None:
        """Where it ended; None before, and if it never began. Another choice may still run."""
        if self.state(stream) != "ended":
            return None
        return stream.place if self._running is None else self._running.places.get(stream.index)

    async def between_tokens(
        self, stream: KeptStream, work: Callable[[JobRun], Any], receive: Receive
    ) -> Any:
        """The result of `work`, done before the next token of `stream`. Raises StreamStateError if
        there is none, TooManyControlsError, and what `work` raises.
        """
        self.check_waiting(stream)
        running = self._running
        if running is None:
            raise StreamStateError(UNBEGUN)
        self.check_turn(stream)

        def on_its_run(run: JobRun) -> Any:
            if run.job.index != stream.index:
                raise StreamStateError("the stream has ended")
            return work(run)

        try:
            return await running.steer(on_its_run, receive)
        except StreamStateError:
            if stream.index < len(running.ends) or running.error is not None:
                await self._end_of(stream, receive)
            raise

    async def _end_of(self, stream: KeptStream, receive: Receive) -> None:
        """Wait until it is told that the stream has ended: the engine knows it a little earlier."""
        while self.state(stream) != "ended":
            await attended(self.log.changed(self.log.n_events), receive)

    def check_turn(self, stream: KeptStream) -> None:
        """Raise StreamStateError for a choice that waits for one before it."""
        if stream.index and self.streams[stream.index - 1].finish is None:
            raise StreamStateError("the stream is queued: a choice before it has not ended")

    def check_waiting(self, stream: KeptStream) -> None:
        """Raise StreamStateError if the stream has ended, TooManyControlsError if as many wait for
        its next token as may.
        """
        if self.state(stream) == "ended":
            raise self._ended_error(stream)
        if self._running is not None and self._running.n_waiting >= _MAX_WAITING:
            raise TooManyControlsError(
                f"{_MAX_WAITING} controls wait for the next token of this stream, as many as may"
            )

    async def rest(self) -> None:
        """Wait until a stream that is being paused has been put down."""
        while (running := self._running) is not None and running.is_paused and not self._is_down:
            await asyncio.sleep(_LOOK_S)

    def leave_queue(self) -> None:
        """If it waits for the engine, put it down: the server shuts down."""
        if self._running is not None:
            self._running.leave_queue()

    async def put_down(self, *, until: float) -> None:
        """Pause it, and end its walk so that a later process can go on with it. A stream that gets
        no token until `until`, a time of the event loop, goes on until it is cancelled.
        """
        running = self._running
        if running is None or self._task is None:
            return
        if not running.is_down:
            with suppress(ServerError, EngineError, ClientDisconnect, TimeoutError):
                async with asyncio.timeout_at(until):
                    await self.control(self.current, pause(reason=SHUT_DOWN), nobody)
                    await self.rest()
        is_new = self.current.begun is None
        if self.ended or not (running.is_down or is_new):
            return
        if is_new:
            self.reason = SHUT_DOWN
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None
        self.log.leave(UnavailableError("the server is shutting down; the stream is paused"))
        self.on_rest()
        running.cancel()

    async def closed(self) -> None:
        """Wait for the end of its walk."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def paused(self) -> Pause | None:
        """What is to be kept of it if it is down, or is put down before its first token."""
        running = self._running
        if running is None or self.ended:
            return None
        if self._is_down or self._task is None:
            return running.pause(list(self._events))
        return None

    @property
    def packed_pause(self) -> bytes:
        """The same of one that `is_put_down`, in bytes."""
        return self._paused

    def packed(self, stream: KeptStream, pause: Pause | None) -> Callable[[], Packed]:
        """What makes the bytes of one of its streams, on any thread. `pause`: `paused`."""
        running = self._running
        if pause is None or running is None:
            return stream.packed(None)
        return stream.packed_in(pause, running.jobs)

    @property
    def _is_down(self) -> bool:
        """Whether it has been put down, and all that it did is in the log."""
        running = self._running
        return running is not None and running.is_down and not running.unread_bytes

    def _start(
        self, stream: CompletionStream, answer: Answer, encoder: Encoder, max_bytes: int
    ) -> None:
        self._running, self.error_event = stream, encoder.failed
        stream.on_put_down = self._notice_rest
        self._task = asyncio.create_task(self._walk(stream, answer, encoder, max_bytes))

    async def _walk(
        self, stream: CompletionStream, answer: Answer, encoder: Encoder, max_bytes: int
    ) -> None:
        """Cancelled, it ends without an end."""
        try:
            async for batch in stream.results():
                self._events += batch
                for part in parts_of(batch):
                    self.log.append(contained(encoder.frames, part))
                    self._note(part)
                if stream.ends_with(batch[-1]):
                    frames = contained(encoder.closing, stream)
                    whole = await asyncio.to_thread(contained, answer.whole, stream, self._events)
                    self.whole = zlib.compress(whole)
                    self.log.append(frames)
                elif sum(each.n_bytes for each in self.streams) + self.log.n_bytes > max_bytes:
                    raise UnreadLimitError(
                        "the answer takes more memory than the server keeps of one; ask for less"
                    )
                self._notice_rest()
        except Exception as error:
            self._fail(self._reason(error))
            if self.error is not None and not is_callers_own(self.error):
                text = "the stream of request %s ended early: %s"
                _logger.warning(text, stream.request_id, error, exc_info=True)
        stream.cancel()
        self._finish()

    def _notice_rest(self) -> None:
        if self._is_down:
            self.on_rest()

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Step):
                self.streams[event.choice].add(event)
            elif isinstance(event, Begun):
                self.streams[event.choice].begun = event
            elif isinstance(event, Controlled):
                if event.pieces is not None:
                    self.streams[event.choice].go_back(event.pieces)
                if event.kind in ("pause", "resume"):
                    self.reason = event.arguments.get("reason")
                self._controls.append((event, self.log.n_events))

    def _reason(self, error: Exception) -> Exception:
        running = self._running
        if self._cancelled is not None and running is not None and running.was_abandoned:
            return self._cancelled
        return StreamCancelledError("cancelled") if isinstance(error, ClientDisconnect) else error

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.reason = error_body(error)["error"]["message"]
        self.log.append(self.error_event(error))

    def _ended_error(self, stream: KeptStream) -> StreamStateError:
        reason = self.reason if stream.finish == "error" and self.reason else stream.finish
        can_go_on = stream.is_packed and stream.place is not None
        hint = "; branch it to go on from there" if can_go_on else ""
        return StreamStateError(f"the stream has ended: {reason or 'just now'}{hint}")

    def _finish(self) -> None:
        places = self._running.places if self._running is not None else {}
        for stream in self.streams:
            stream.finish = stream.finish or "error"
            stream.pack(places.get(stream.index))
        self._running, self._events, self._paused = None, [], b""
        self.log.end()
        self.on_rest()
