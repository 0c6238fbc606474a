"""Which states of recurrent layers are held, and that a pass begins with the right ones."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from engine.cache.states import KEPT_ROWS, RecurrentStates
from engine.checkpoint.recurrent import StateShape
from engine.device.ops import Ops
from tests.support.toy_states import ToyMemory, state_of


class Rows:
    """Rows and their states."""

    def __init__(self) -> None:
        self.memory = ToyMemory(0, 0)
        self.states = RecurrentStates([StateShape(1, 1)], cast(Ops, self))
        self.rows: list[int] = []

    def state_memory(self, shapes: Any, *, n_slots: int, n_logged: int) -> ToyMemory:
        self.memory = ToyMemory(n_slots, n_logged)
        return self.memory

    def run(self, rows: Sequence[int], *, is_aborted: bool = False) -> None:
        self.states.begin(len(self.rows), len(rows))
        if is_aborted:
            _, _, target, n_saves, *saves = self.memory.words.tolist()
            for slot in (target, *saves[:n_saves]):
                self.memory.slots[slot] = -99
            for at in range(len(self.rows), len(self.rows) + len(rows)):
                self.memory.log[at % len(self.memory.log)] = -99
            self.rollback(len(self.rows))
            return
        self.memory.run(len(self.rows), rows)
        self.states.commit()
        self.rows += rows
        state = self.states.snapshot(len(self.rows))
        assert state is not None
        assert state.view(np.int64)[0] == state_of(self.rows), "the state is that of these rows"

    def rollback(self, length: int) -> None:
        del self.rows[self.states.reachable(length) :]


@pytest.mark.parametrize("seed", range(6))
def test_states_are_those_of_the_rows_whatever_happened(seed: int) -> None:
    choice, sequence = np.random.default_rng(seed), Rows()
    for _ in range(400):
        n = int(choice.choice([1, 1, 1, 2, 5, 16, 17, 40, 100]))
        before = len(sequence.rows)
        sequence.run(choice.integers(1, 1000, n).tolist(), is_aborted=choice.random() < 0.1)
        if choice.random() < 0.3:
            back = int(choice.integers(0, 20))
            sequence.rollback(max(len(sequence.rows) - back, 0))
        if len(sequence.rows) > 300:
            sequence.states.clear()
            sequence.rows = []
        assert len(sequence.rows) <= before + n


@pytest.mark.parametrize("n", [1, 2, 7, 16, 40, 300])
def test_as_many_rows_as_a_pass_can_have_can_be_taken_back(n: int) -> None:
    sequence = Rows()
    while len(sequence.rows) < 700:
        sequence.run([3] * n)
        length = len(sequence.rows)
        for back in range(min(KEPT_ROWS, length) + 1):
            assert sequence.states.reachable(length - back) == length - back


def test_beyond_that_the_nearest_earlier_state_remains() -> None:
    sequence = Rows()
    sequence.run([1] * 100)
    assert sequence.states.reachable(60) == 0
    assert sequence.states.reachable(80) == 80
    assert sequence.states.reachable(79) == 0
    with pytest.raises(ValueError, match="cannot go back to position 60"):
        sequence.states.begin(60, 1)
    sequence.run([1] * 10, is_aborted=True)
    assert len(sequence.rows) == 100, "a pass that is aborted leaves what it began with"


def test_a_sequence_that_begins_anew_can_go_back_as_far_as_any() -> None:
    sequence = Rows()
    sequence.run([1] * 500)
    sequence.rows = []  # another sequence, which shares nothing
    sequence.run([2] * 40)
    for back in range(KEPT_ROWS + 1):
        assert sequence.states.reachable(40 - back) == 40 - back


def test_a_snapshot_is_of_a_state_that_is_held() -> None:
    sequence = Rows()
    sequence.run([4] * 50)
    copied = sequence.states.snapshot(50)
    assert copied is not None
    assert sequence.states.snapshot(49) is None
    sequence.run([5] * 40)
    sequence.states.restore(50, copied)
    assert [sequence.states.reachable(n) for n in (49, 50)] == [0, 50]
    del sequence.rows[50:]
    sequence.run([6] * 3)
