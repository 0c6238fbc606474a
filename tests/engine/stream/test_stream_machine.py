"""A stream and all that may be done to it, against a plain list of token ids.

Random sequences of operations; the list knows no cache, no draft and no replay. `make test` runs
few of them: SOLITON_SEQUENCES=10000 runs so many.
"""

import copy
import os
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine import (
    SamplingSettings,
    Snapshot,
    Stream,
    StreamOptions,
    snapshot_from_bytes,
    snapshot_to_bytes,
)
from engine.sampling.op import sample
from engine.sampling.random_numbers import uniform
from engine.sampling.request import SampleRequest, Stage
from tests.support.hash_model import END, N_LETTERS, VOCAB_SIZE, HashModel, row_after

N_SEQUENCES = int(os.environ.get("SOLITON_SEQUENCES", "40"))
ROOM = 96
letters = st.integers(0, N_LETTERS - 1)


@dataclass(frozen=True)
class Knobs:
    """What a caller may turn while a stream runs."""

    start: int
    temperature: float
    seed: int
    attempt: int
    banned: tuple[int, ...]
    budget: int

    def drawn(self, prompt: list[int], token_ids: list[int]) -> int:
        position = len(prompt) + len(token_ids)
        request = SampleRequest(
            u=uniform(self.seed, position, attempt=self.attempt << 16),
            greedy=self.temperature == 0,
            banned_ids=np.array(self.banned, dtype=np.int32),
            stages=np.array([Stage.TEMPERATURE], dtype=np.int32),
            parameters=np.array([[self.temperature, 0.0, 0.0]]),
        )
        row = row_after([*prompt, *token_ids])
        row[END + 1 :] = -np.inf  # the engine leaves out tokens without bytes
        return sample(row, request, work=np.empty_like(row)).token_id


@dataclass
class Plain:
    """The list."""

    prompt: list[int]
    knobs: list[Knobs]
    token_ids: list[int] = field(default_factory=list)
    waiting: list[tuple[int, bool]] = field(default_factory=list)  # whether it was forced
    ended: str | None = None

    def step(self) -> None:
        """One token."""
        now = self.knobs[-1]
        if self.waiting:
            token_id, may_end = self.waiting.pop(0)
        else:
            token_id, may_end = now.drawn(self.prompt, self.token_ids), True
        if token_id == END and may_end:
            self.ended = "stop_token"
            return
        self.token_ids.append(token_id)
        if len(self.token_ids) >= self.room():
            self.ended = "length"

    def room(self) -> int:
        return min(self.knobs[-1].budget, ROOM - len(self.prompt))

    def turn(self, **changes: object) -> None:
        n = len(self.token_ids)
        last = replace(self.knobs[-1], start=n, **changes)  # type: ignore[arg-type]
        self.knobs = [*(each for each in self.knobs if each.start < n), last]

    def back(self, n: int) -> None:
        """The text goes back, the knobs stay."""
        last = self.knobs[-1]
        self.at(n)
        self.knobs = [each for each in self.knobs if each.start < n]
        self.knobs.append(replace(last, start=n))

    def at(self, n: int) -> None:
        """Everything goes back."""
        del self.token_ids[n:]
        self.waiting.clear()
        self.ended = None
        self.knobs = [each for each in self.knobs if each.start <= n]

    def greedily(self, first: int, n: int) -> list[int]:
        """`first` and what follows it greedily, n in all."""
        found = copy.deepcopy(self)
        found.waiting = [(first, True)]
        found.turn(temperature=0.0, budget=len(self.token_ids) + n)
        while found.ended is None:
            found.step()
        return found.token_ids[len(self.token_ids) :]


class StreamMachine(RuleBasedStateMachine):
    """`stream` is the real one, `plain` what it must be."""

    @initialize(
        prompt=st.lists(letters, min_size=1, max_size=40),
        seed=st.integers(0, 99),
        temperature=st.sampled_from([0.0, 0.7, 1.0, 2.0]),
        budget=st.integers(20, 80),
    )
    def begin(self, prompt: list[int], seed: int, temperature: float, budget: int) -> None:
        self.model = HashModel(max_seq_len=ROOM)
        self.generator = self.model.generator()
        self.kept: list[tuple[Snapshot, Plain]] = []
        self.plain = Plain(prompt, [Knobs(0, temperature, seed, 0, (), budget)])
        self.stream: Stream = self.generator.begin(
            prompt,
            SamplingSettings(temperature=temperature, seed=seed),
            StreamOptions(max_new_tokens=budget),
        )
        self.keep()

    def is_running(self) -> bool:
        return not self.stream.ended

    @precondition(is_running)
    @rule(n=st.integers(1, 6))
    def step(self, n: int) -> None:
        for _ in range(n):
            if self.stream.ended:
                return
            before = self.stream.n_completion_tokens
            result = self.stream.step()
            if len(self.plain.token_ids) >= self.plain.room():
                self.plain.ended = "length"  # one that was restored at its limit
            for _ in range(self.stream.n_completion_tokens - before):
                assert self.plain.ended is None
                self.plain.step()
            assert result.eos_reason == self.plain.ended
            text = "".join(
                chr(ord("a") + each.token_id) for each in result.tokens if each.token_bytes
            )
            assert result.chunk == text

    @precondition(is_running)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        mark = self.stream.mark()
        assert mark == len(self.plain.token_ids)
        n = data.draw(st.integers(0, mark))
        if data.draw(st.booleans()):
            self.stream.rollback(n)
        else:
            self.stream.rewind(mark - n)
        assert self.stream.n_inherited_tokens == n
        self.plain.back(n)

    @precondition(is_running)
    @rule(token_id=st.one_of(letters, st.just(END)))
    def force(self, token_id: int) -> None:
        if self.room_left():
            self.stream.force(token_id)
            self.plain.waiting.append((token_id, True))

    @precondition(is_running)
    @rule(token_ids=st.lists(st.integers(0, END), max_size=20))
    def inject(self, token_ids: list[int]) -> None:
        token_ids = token_ids[: self.room_left()]
        self.stream.inject(token_ids)
        self.plain.waiting += [(token_id, False) for token_id in token_ids]

    @precondition(is_running)
    @rule(temperature=st.sampled_from([0.0, 0.5, 1.5]), seed=st.none() | st.integers(0, 9))
    def set(self, temperature: float, seed: int | None) -> None:
        banned = self.plain.knobs[-1].banned
        self.stream.set(SamplingSettings(temperature=temperature, seed=seed, banned_tokens=banned))
        if seed is None:
            self.plain.turn(temperature=temperature)
        else:
            self.plain.turn(temperature=temperature, seed=seed)

    @precondition(is_running)
    @rule()
    def redraw(self) -> None:
        self.stream.redraw()
        self.plain.turn(attempt=self.plain.knobs[-1].attempt + 1)

    @precondition(is_running)
    @rule(token_id=letters)
    def ban(self, token_id: int) -> None:
        self.stream.ban([token_id])
        self.plain.turn(banned=(*self.plain.knobs[-1].banned, token_id))

    @precondition(is_running)
    @rule(more=st.integers(1, 30))
    def extend(self, more: int) -> None:
        budget = len(self.plain.token_ids) + len(self.plain.waiting) + more
        self.stream.extend(budget)
        self.plain.turn(budget=budget)

    @rule()
    def keep(self) -> None:
        snapshot = snapshot_from_bytes(snapshot_to_bytes(self.stream.snapshot()))
        self.kept.append((snapshot, self.continued(self.plain)))

    @rule(data=st.data(), is_restart=st.booleans())
    def restore(self, data: st.DataObject, is_restart: bool) -> None:
        """Any stream that was kept, perhaps by another process."""
        snapshot, plain = data.draw(st.sampled_from(self.kept), label="kept")
        if is_restart:
            self.generator = self.model.generator()
        self.stream = self.generator.restore(snapshot)
        self.plain = copy.deepcopy(plain)

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        """Another stream from an earlier place; the first one is left where it is."""
        snapshot, plain = self.stream.snapshot(), self.continued(self.plain)
        branched = copy.deepcopy(plain)
        n = data.draw(st.integers(0, snapshot.n_tokens), label="at")
        branched.at(n)
        place = snapshot.at(n)
        if branched.room() > n and data.draw(st.booleans(), label="forced"):
            token_id = data.draw(letters)
            place = place.forced(token_id)
            branched.waiting.append((token_id, True))
        self.stream, self.plain = self.generator.restore(place), branched
        assert self.stream.n_inherited_tokens == n
        self.step(data.draw(st.integers(1, 8)))
        if data.draw(st.booleans(), label="return"):
            self.stream, self.plain = self.generator.restore(snapshot), plain

    @precondition(is_running)
    @rule(top=st.integers(1, 3), n_tokens=st.integers(1, 5))
    def peek(self, top: int, n_tokens: int) -> None:
        snapshot = self.stream.snapshot()
        found = self.stream.peek(top=top, n_tokens=n_tokens)
        assert self.stream.snapshot() == snapshot
        row = row_after([*self.plain.prompt, *self.plain.token_ids])
        ids = np.argsort(-row, kind="stable")[:top].tolist()
        n = min(n_tokens, ROOM - len(self.plain.prompt) - len(self.plain.token_ids))
        wanted = [self.plain.greedily(token_id, n) for token_id in ids]
        assert [[each.token_id for each in one.tokens] for one in found] == wanted

    def room_left(self) -> int:
        plain = self.plain
        return max(plain.room() - len(plain.token_ids) - len(plain.waiting), 0)

    @staticmethod
    def continued(plain: Plain) -> Plain:
        """The same, not ended: restored, it goes on."""
        other = copy.deepcopy(plain)
        other.ended = None
        return other

    @invariant()
    def same(self) -> None:
        snapshot = self.stream.snapshot()
        assert list(snapshot.token_ids) == self.plain.token_ids
        assert [each.token_id for each in snapshot.waiting] == [
            token_id for token_id, _ in self.plain.waiting
        ]
        assert snapshot.settings.temperature == self.plain.knobs[-1].temperature


assert VOCAB_SIZE > END

TestStreamMachine = StreamMachine.TestCase
TestStreamMachine.settings = settings(
    max_examples=N_SEQUENCES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
