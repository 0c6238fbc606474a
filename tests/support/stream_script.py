"""What has been done with a stream, and what must have come of it.

Owns the script of a stream: how it began, and what was done at which number of tokens. `Oracle`
plays it with the engine's own calls, token by token and in one go: there is no server, no pause, no
draft and nothing cached.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from engine import AbortFlag, Engine, Glimpse, SamplingSettings, Snapshot, Stream, StreamOptions

NUMBERS = ("token_id", "logprob", "p_raw", "p_sampled", "rank", "entropy", "margin", "kept_mass")
_MOST_VISITS = 4


class Act(NamedTuple):
    """Something that was done between two tokens."""

    n_tokens: int
    """Of the completion, before it."""
    change: Callable[[Stream], None] | None
    """None: the stream was stopped."""
    goes_back: bool = False


@dataclass
class Script:
    """One stream, from its beginning on, or from where it left `parent`."""

    prompt_ids: Sequence[int]
    settings: SamplingSettings
    options: StreamOptions
    parent: "Script | None" = None
    at: int = 0
    opening: Callable[[Snapshot], Snapshot] = lambda place: place
    """Of a branch: what it changes of its parent's place."""
    acts: list[Act] = field(default_factory=list)
    has_bans: bool = False
    """Whether banned strings may take tokens back: then a number of tokens can come twice."""

    def frozen(self) -> "Script":
        """As it is now: what is done later is not in it."""
        return replace(self, acts=list(self.acts))


class Outcome(NamedTuple):
    """What a stream said."""

    numbers: list[tuple[Any, ...]]
    text: str
    finish: str | None

    def begins_with(self, other: "Outcome") -> bool:
        """Whether `other`, which was cut off, is the beginning of it."""
        n = len(other.numbers)
        return self.numbers[:n] == other.numbers and self.text.startswith(other.text)


class _Place(NamedTuple):
    snapshot: Snapshot
    records: list[Any]
    text: str


def numbers_of(records: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(record, name) for name in NUMBERS) for record in records]


class Oracle:
    """Over an engine of its own."""

    def __init__(self, engine: Engine) -> None:
        self._generator = engine.generator
        self._keys = map(str, itertools.count(1))

    def outcomes(self, script: Script) -> Iterator[Outcome]:
        """What may have come of it: one outcome, or with banned strings one for each of the
        moments at which each act may have been done.
        """
        for place in self._beginnings(script):
            for skips in _skips(script):
                found = self._play(script, place, skips, until=None)
                if found is not None:
                    outcome, _ = found
                    yield outcome

    def peeks(
        self, script: Script, at: int, token_ids: Sequence[int] | None, top: int, n_tokens: int
    ) -> Iterator[list[Glimpse]]:
        """What a peek at the place may say."""
        for place in self._places(script, at):
            stream = self._generator.restore(place.snapshot, isolation_key=next(self._keys))
            yield stream.peek(token_ids, top=top, n_tokens=n_tokens)

    def _beginnings(self, script: Script) -> Iterator[_Place | None]:
        if script.parent is None:
            yield None
            return
        for place in self._places(script.parent, script.at):
            yield place._replace(snapshot=script.opening(place.snapshot))

    def _places(self, script: Script, at: int) -> Iterator[_Place]:
        seen = []
        for beginning in self._beginnings(script):
            # A token that was taken back at the place since then is not drawn there again.
            for skips, visits in itertools.product(_skips(script), range(_most_visits(script))):
                found = self._play(script, beginning, skips, until=at, visits=visits)
                if found is not None and found[1].snapshot not in seen:
                    seen.append(found[1].snapshot)
                    yield found[1]

    def _play(
        self,
        script: Script,
        place: _Place | None,
        skips: Sequence[int],
        *,
        until: int | None,
        visits: int = 0,
    ) -> tuple[Outcome, _Place] | None:
        """None: an act was never reached. `until`: to so many tokens, after all acts; None: to the
        end. The place returned is then at so many tokens. `visits`: how often that number of tokens
        passes before.
        """
        run = _Run(self._generator, script, place, next(self._keys))
        acts, left = list(script.acts), list(skips)
        while True:
            while acts and run.n_tokens == acts[0].n_tokens and not run.ended:
                if left[0]:
                    left[0] -= 1
                    break
                run.do(acts.pop(0))
                left.pop(0)
            if run.ended:
                break
            if until is not None and not acts and run.n_tokens >= until:
                if not visits:
                    break
                visits -= run.n_tokens == until
            run.step()
        if acts:
            return None
        snapshot = run.stream.snapshot()
        at = snapshot.n_tokens if until is None else until
        if at > snapshot.n_tokens:
            return None
        return run.outcome, _Place(snapshot.at(at), run.records, run.text + run.dropped_text)


class _Run:
    def __init__(self, generator: Any, script: Script, place: _Place | None, key: str) -> None:
        self._abort = AbortFlag()
        self._finish: str | None = None
        self.records: list[Any] = []
        self.text = self.dropped_text = ""
        if place is None:
            options = replace(
                script.options,
                speculate=False,
                max_tokens_per_call=1,
                isolation_key=key,
                abort=self._abort,
            )
            self.stream: Stream = generator.begin(script.prompt_ids, script.settings, options)
            return
        self.stream = generator.restore(place.snapshot, isolation_key=key, abort=self._abort)
        self.records, self.text = place.records, place.text
        self._go_back()

    @property
    def n_tokens(self) -> int:
        return self.stream.n_completion_tokens

    @property
    def ended(self) -> bool:
        return self._finish is not None

    @property
    def outcome(self) -> Outcome:
        return Outcome(numbers_of(self.records), self.text, self._finish)

    def do(self, act: Act) -> None:
        if act.change is None:
            self._abort.set()
            self.step()
            self._finish = "control"
            return
        act.change(self.stream)
        if act.goes_back:
            self._go_back()

    def step(self) -> None:
        result = self.stream.step()
        self.records = [*self.records, *result.tokens, *result.dropped]
        self.text += result.chunk
        self.dropped_text = result.dropped_text
        self._finish = result.eos_reason

    def _go_back(self) -> None:
        self.records = self.records[: self.stream.n_inherited_tokens]
        self.text = self.text[: self.stream.n_inherited_characters]


def _most_visits(script: Script) -> int:
    return _MOST_VISITS if script.has_bans else 1


def _skips(script: Script) -> Iterator[tuple[int, ...]]:
    """How often each act lets its number of tokens pass."""
    n = len(script.acts)
    yield (0,) * n
    if script.has_bans:
        for i in range(n):
            for visits in range(1, _MOST_VISITS):
                yield (*(0,) * i, visits, *(0,) * (n - i - 1))
