"""One job in the engine, from its first step to its last; it can be put down in between.

Owns the loop over the steps of one stream, and what may be done between two of them. Runs on the
engine thread. Knows no queue: whoever has the lease calls `go`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from engine import AbortFlag, Snapshot, Stream, StreamingGenerator, StreamResult

from .feed import Feed
from .inherited import first_steps, with_held
from .jobs import Begun, CompletionJob, Controlled, Event, Progress, Step, isolation_key
from .pause import Pause, Run
from .steering import Steering
from .time_limit import TimeLimit
from .token_results import TokenResults


class JobRun:
    """`go` until it returns True: then `untold` and `last_step` are not in the feed."""

    def __init__(
        self,
        job: CompletionJob,
        generator: StreamingGenerator,
        feed: Feed[Event],
        *,
        key: str,
        clock: Callable[[], float],
        steering: Steering["JobRun"] | None,
    ) -> None:
        """`steering` None: nothing is done between two tokens, and no step is remembered."""
        self.job = job
        self._generator = generator
        self._feed = feed
        self._key = key
        self._clock = clock
        self._steering = steering
        self._results: TokenResults | None = None
        self._pieces: list[Step] = []
        self.place = job.snapshot
        self._limit: TimeLimit | None = None
        self._stream: Stream | None = None
        self.is_paused = False
        self.start = clock()
        self.begun: Begun | None = None
        self.first_clock: float | None = None
        """When the first token came."""
        self._held = ""  # of a run that was put down: text that waits for the rest of its token
        self.last_step: Step | None = None
        self.untold: Sequence[Event] = ()
        """Events before the last step that are not in the feed."""
        self.n_shown = 0
        """Characters before the last step."""
        self.n_drafted = self.n_accepted = 0

    @property
    def stream(self) -> Stream:
        """The engine's, while it runs."""
        assert self._stream is not None, "it is called between two tokens only"
        return self._stream

    @property
    def has_token(self) -> bool:
        return self.first_clock is not None

    @property
    def ended_by(self) -> str | None:
        """What ended it that is not in its text: "time" or "control"."""
        limit = self._limit
        if limit is None:
            return None
        return "time" if limit.is_over else "control" if limit.is_stopped else None

    @property
    def paused_at(self) -> tuple[Snapshot, list[Step]] | None:
        """The same, of a run that has been put down."""
        return None if self.place is None else (self.place, self._steps())

    @property
    def put_down(self) -> Run:
        """What it has come to, as it was when it was paused."""
        return Run(
            self.place,
            self.start,
            self.first_clock,
            self.n_drafted,
            self.n_accepted,
            self._waiting_text,
        )

    def take_up(self, pause: Pause) -> None:
        """Be as it was when it was put down. Before `go`."""
        place, self.start, self.first_clock, self.n_drafted, self.n_accepted, self._held = pause.run
        self.place = place or self.place
        self.is_paused = True
        for event in pause.events:
            if event.choice != self.job.index:
                continue
            if isinstance(event, Begun):
                self.begun = event
            elif isinstance(event, Step):
                self._pieces.append(event)
            elif isinstance(event, Controlled) and event.pieces is not None:
                self._pieces = list(event.pieces)
        self.n_shown = sum(len(step.result.chunk) for step in self._pieces)

    def snapshot(self) -> tuple[Snapshot, list[Step]]:
        """Where it is, and its steps so far."""
        return self.stream.snapshot(), self._steps()

    def _steps(self) -> list[Step]:
        return with_held(self._pieces, self.job.index, self._waiting_text)

    @property
    def _waiting_text(self) -> str:
        """What the engine has shown of a token whose rest it holds."""
        return self._held if self._results is None else self._results.held

    def stop(self) -> None:
        """End it before the next token, with what has been generated."""
        assert self._limit is not None
        self._limit.stop()

    def control(
        self, kind: str, arguments: dict[str, Any], *, goes_back: bool = False
    ) -> Controlled:
        """Report what has been done with it, as an event among its steps."""
        stream = self.stream
        event = Controlled(
            self.job.index, kind, stream.n_completion_tokens, arguments, self._clock()
        )
        if goes_back:
            n_tokens, n_characters = stream.n_inherited_tokens, stream.n_inherited_characters
            self._pieces = first_steps(self._pieces, n_tokens, n_characters)
            event = event._replace(pieces=tuple(self._pieces))
            self.n_shown = n_characters
            if self._results is not None:
                self._results.go_back(n_characters)
        self._feed.append(event)
        return event

    def go(self, abort: AbortFlag) -> bool:
        """Generate to the end. False: it has been paused, and `go` goes on from there."""
        untold = self._begin(abort)
        if self.job.inherited and untold and not self.job.progress:
            self._feed.extend(untold)  # their reader encodes them during the first pass
            untold.clear()
        results, steering = self._results, self._steering
        step: Callable[[], StreamResult] = self.stream.step if results is None else results
        asked = steering.waiting if steering is not None else ()
        append, clock, choice = self._feed.append, self._clock, self.job.index
        while True:
            if asked or self.is_paused:
                if untold:
                    self._feed.extend(untold)
                    untold.clear()
                if results is None or not results.is_behind:
                    assert steering is not None
                    steering.make_all(self)
                    if self.is_paused:
                        self.place = self.stream.snapshot()
                        self.stream.end()
                        return False
            result = step()
            piece = Step(choice, result, clock())
            self.n_drafted += result.n_drafted
            self.n_accepted += result.n_accepted
            is_first = self.first_clock is None
            if is_first:
                self._note_first(piece, untold)
            if result.eos:
                break
            if steering is not None:
                self._pieces.append(piece)
            if is_first or untold:
                self._feed.extend([*untold, piece])  # whether or not the reader rests
                untold.clear()
            else:
                append(piece)
            self.n_shown += len(result.chunk)
        self.last_step, self.untold = piece, untold
        return True

    def _begin(self, abort: AbortFlag) -> list[Event]:
        """The events that are sent with the first step, unless they are many: alone they would only
        wake the reader and put it to rest.
        """
        job = self.job
        seconds = job.max_seconds
        if seconds is not None or self._steering is not None:
            self._limit = TimeLimit(abort, seconds)
        stream = self._stream = self._opened(self._limit or abort)
        prefilled = self._clock()
        if self._limit is not None:
            self._limit.start()
        if self._results is not None:
            self._results.follow(stream.step)
        elif job.token_by_token:
            n_said = stream.n_inherited_characters if self.begun is None else self.n_shown
            self._results = TokenResults(stream.step, n_said=n_said, held=self._held)
        if self.begun is not None:
            return []
        self.begun = Begun(job.index, stream.prefill, prefilled, self.start)
        n_tokens, n_characters = stream.n_inherited_tokens, stream.n_inherited_characters
        inherited = first_steps(job.inherited, n_tokens, n_characters)
        self.n_shown = sum(len(step.result.chunk) for step in inherited)
        self._pieces = [
            Step(job.index, step.result, prefilled, step.stop_detail) for step in inherited
        ]
        return [self.begun, *self._pieces]

    def _opened(self, abort: AbortFlag) -> Stream:
        job = self.job

        def report(done: int, total: int) -> None:
            n_cached = len(job.input_ids) - 1 - total
            now = self._clock()
            self._feed.extend((Progress(job.index, n_cached + done, n_cached, self.start, now),))

        own_key = isolation_key(self._key, job.options.isolation_key)
        on_progress = report if job.progress and self.begun is None else None
        if self.place is None:
            options = dataclasses.replace(
                job.options, isolation_key=own_key, abort=abort, on_progress=on_progress
            )
            return self._generator.begin(job.input_ids, job.settings, options)
        return self._generator.restore(self.place, isolation_key=own_key, abort=abort)

    def _note_first(self, piece: Step, untold: list[Event]) -> None:
        self.first_clock = piece.clock
        begun = self.begun
        assert begun is not None
        if self.job.progress and piece.result.eos_reason != "aborted":
            # The first pass processes the last token of the prompt, which may be the only one that
            # was not cached.
            n_prompt, n_cached = begun.prefill.n_prompt, begun.prefill.n_cached
            untold.insert(0, Progress(piece.choice, n_prompt, n_cached, self.start, piece.clock))
