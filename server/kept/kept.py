"""One kept answer: its streams, its events, and the walk that fills both.

Owns the state of a stream for those who ask later. The walk is that of any request; here it is read
to its end whoever is connected. Used on the event loop.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from engine import Snapshot, snapshot_from_bytes, snapshot_to_bytes

from ..answer.shape import Answer, Encoder
from ..answer.sse import encode_event
from ..errors import (
    StreamCancelledError,
    StreamStateError,
    UnreadLimitError,
    contained,
    error_body,
    is_callers_own,
)
from ..lease.waiter import attended
from ..stream.job_run import JobRun
from ..stream.jobs import Begun, Controlled, Event, Step, event_bytes
from ..stream.stream import CompletionStream
from .controls import Control
from .log import EventLog
from .steps import steps_from_bytes, steps_to_bytes

_logger = logging.getLogger(__name__)

State = Literal["queued", "prefilling", "running", "paused", "ended"]

# What an entry takes besides what is counted.
_OWN_BYTES = 4096


@dataclass(slots=True)
class Origin:
    """Where a branch left its parent."""

    parent: str
    """Its id."""
    at: int
    """Tokens of the parent's completion that are this stream's too."""


@dataclass(slots=True)
class KeptStream:
    """One choice of a kept answer: a stream of its own."""

    id: str
    index: int
    prompt_ids: Sequence[int]
    origin: Origin | None = None
    children: list[str] = field(default_factory=list)
    begun: Begun | None = None
    _place: bytes = b""
    finish: str | None = None
    """Why it ended, in the engine's words, or "error"."""
    n_tokens: int = 0
    """Generated so far, also those that ended the text."""
    n_bytes: int = 0
    """About how much memory its tokens take."""
    _steps: list[Step] = field(default_factory=list)
    _packed: bytes = b""

    def steps(self) -> list[Step]:
        """So far."""
        return [*(steps_from_bytes(self._packed) if self._packed else ()), *self._steps]

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self.n_bytes += event_bytes(step)
        self.n_tokens += len(step.result.tokens) + len(step.result.dropped)
        if step.result.eos:
            self.finish = step.stop_detail or step.result.eos_reason

    def go_back(self, steps: Sequence[Step]) -> None:
        """Only `steps` are left."""
        self._steps, self._packed = [], b""
        self.n_bytes = self.n_tokens = 0
        for step in steps:
            self.add(step)

    @property
    def place(self) -> Snapshot | None:
        """Where it ended; None before, and if it never began."""
        return snapshot_from_bytes(self._place) if self._place else None

    def pack(self, place: Snapshot | None) -> None:
        """Keep what it is in little memory, now that it has ended at `place`."""
        self._place = b"" if place is None else snapshot_to_bytes(place)
        if self._steps:
            self._packed, self._steps = steps_to_bytes(self.steps()), []
        self.n_bytes = len(self._packed) + len(self._place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for."""

    key: str
    """The caller's: nobody else sees the answer."""
    wire: str
    """The name of the wire that `body` and the answer are of."""
    body: bytes
    """JSON in zlib."""
    model: str
    created: int
    is_background: bool
    is_stored: bool
    """Whether the request itself asked to keep it."""


class Kept:
    """One answer. `start` begins its walk; its events are in `log`."""

    def __init__(self, id_: str, request: Request, streams: Sequence[KeptStream]) -> None:
        self.id = id_
        self.request = request
        self.streams = tuple(streams)
        self.log = EventLog()
        self.metadata: dict[str, str] = {}
        self.error: Exception | None = None
        """The error that ended it, if one did."""
        self.whole = b""
        """The whole answer as JSON, in zlib; b"" until it has ended well."""
        self.on_ended: Callable[[], None] = lambda: None
        self._controls: list[tuple[Controlled, int]] = []
        self._running: CompletionStream | None = None
        self._cancelled: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return self.log.ended

    @property
    def n_bytes(self) -> int:
        """About how much memory it takes."""
        n_bytes = _OWN_BYTES + len(self.request.body) + len(self.whole) + self.log.n_bytes
        for stream in self.streams:
            n_bytes += stream.n_bytes + 8 * len(stream.prompt_ids)
        return n_bytes + sum(len(name) + len(value) for name, value in self.metadata.items())

    def state(self, stream: KeptStream) -> State:
        if stream.finish is not None or self.ended:
            return "ended"
        running = self._running
        if stream.begun is not None:
            return "paused" if running is not None and running.is_paused else "running"
        is_next = all(each.finish is not None for each in self.streams[: stream.index])
        is_admitted = running is not None and running.ticket.admitted_at is not None
        return "prefilling" if is_next and is_admitted else "queued"

    def start(self, stream: CompletionStream, answer: Answer, *, max_bytes: int) -> None:
        """Read the stream to its end. `max_bytes`: for its steps, as they are before the end."""
        self._running = stream
        encoder = contained(answer.encoder)
        self._task = asyncio.create_task(self._walk(stream, answer, encoder, max_bytes))

    def leave(self) -> None:
        """The client that asked for it has left."""
        if not self.request.is_background:
            self.cancel(StreamCancelledError("the client that began the stream has hung up"))

    def cancel(self, error: Exception) -> None:
        """End it with `error`. Harmless when it has ended."""
        if self._running is not None:
            self._cancelled = self._cancelled or error
            self._running.cancel()

    async def control(
        self, stream: KeptStream, control: Control, receive: Receive
    ) -> tuple[Controlled, int]:
        """Do it before the next token of `stream`. Returns the event that says so, and its number.
        Raises StreamStateError, and what the control raises.
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
                raise StreamStateError("the stream has ended")
            await attended(self.log.changed(n_events), receive)

    def ended_at(self, stream: KeptStream) -> Snapshot | None:
        """Where it ended; None before, and if it never began. Another choice may still run."""
        if stream.finish is not None and self._running is not None:
            return self._running.places.get(stream.index)
        return stream.place

    async def place(self, stream: KeptStream, receive: Receive) -> tuple[Snapshot, Sequence[Step]]:
        """Where it is, and its steps so far. Raises StreamStateError for one that never began."""
        running = self._running
        if running is not None and running.paused_at is not None and self.state(stream) == "paused":
            return running.paused_at
        if self.state(stream) != "ended":
            self._check_turn(stream)
            try:
                found: tuple[Snapshot, Sequence[Step]] = await self.between_tokens(
                    stream, lambda run: run.snapshot(), receive
                )
                return found
            except StreamStateError:
                if self.state(stream) != "ended":
                    raise
        ended_at = self.ended_at(stream)
        if ended_at is None:
            raise StreamStateError("the stream ended before its first token")
        return ended_at, stream.steps()

    async def between_tokens(
        self, stream: KeptStream, work: Callable[[JobRun], Any], receive: Receive
    ) -> Any:
        """The result of `work`, done before the next token of `stream`. Raises StreamStateError if
        there is none, and what `work` raises.
        """
        running, state = self._running, self.state(stream)
        if running is None or state == "ended":
            raise StreamStateError(f"the stream has ended: {stream.finish}")
        self._check_turn(stream)

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

    def _check_turn(self, stream: KeptStream) -> None:
        if stream.index and self.streams[stream.index - 1].finish is None:
            raise StreamStateError("the stream is queued: a choice before it has not ended")

    async def closed(self) -> None:
        """Wait for the end of its walk."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _walk(
        self, stream: CompletionStream, answer: Answer, encoder: Encoder, max_bytes: int
    ) -> None:
        events: list[Event] = []
        try:
            async for batch in stream.results():
                events += batch
                for part in _parts(batch):
                    self.log.append(contained(encoder.frames, part))
                    self._note(part)
                frames = b""
                if stream.ends_with(batch[-1]):
                    frames += contained(encoder.closing, stream)
                    whole = await asyncio.to_thread(contained, answer.whole, stream, events)
                    self.whole = zlib.compress(whole)
                elif sum(each.n_bytes for each in self.streams) > max_bytes:
                    raise UnreadLimitError(
                        "the answer takes more memory than the server keeps of one; ask for less"
                    )
                self.log.append(frames)
        except Exception as error:
            self.error = self._reason(error)
            if not is_callers_own(self.error):
                text = "the stream of request %s ended early: %s"
                _logger.warning(text, stream.request_id, error, exc_info=True)
            self.log.append(encode_event(error_body(self.error)))
        finally:
            stream.cancel()
            self._finish()

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Step):
                self.streams[event.choice].add(event)
            elif isinstance(event, Begun):
                self.streams[event.choice].begun = event
            elif isinstance(event, Controlled):
                if event.pieces is not None:
                    self.streams[event.choice].go_back(event.pieces)
                self._controls.append((event, self.log.n_events))

    def _reason(self, error: Exception) -> Exception:
        running = self._running
        if self._cancelled is not None and running is not None and running.was_abandoned:
            return self._cancelled
        return StreamCancelledError("cancelled") if isinstance(error, ClientDisconnect) else error

    def _finish(self) -> None:
        places = self._running.places if self._running is not None else {}
        for stream in self.streams:
            stream.finish = stream.finish or "error"
            stream.pack(places.get(stream.index))
        self._running = None
        self.log.end()
        self.on_ended()


def _parts(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events, divided after each that has a number of its own."""
    start = 0
    for i, event in enumerate(events, 1):
        if isinstance(event, Controlled) or i == len(events):
            yield events[start:i]
            start = i
