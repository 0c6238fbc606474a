"""States of recurrent layers whose content can be checked: a hash of all rows before."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.device.ops import Bytes

_PRIME = 2**61 - 1


class ToyMemory:
    """Walks over rows as csrc/recurrent.h does."""

    slot_bytes = 8

    def __init__(self, n_slots: int, n_logged: int) -> None:
        self.words = np.zeros(8, np.int64)
        self.slots = np.full(n_slots, -1, np.int64)
        self.log = np.full(n_logged, -1, np.int64)
        self.layers: Sequence[Any] = ()

    def run(self, position: int, rows: Sequence[int]) -> None:
        source, begin, target, n_saves, *rest = self.words.tolist()
        saves = dict(zip(rest[2 : 2 + n_saves], rest, strict=False))
        state = int(self.slots[source]) if source >= 0 else 0
        for at in range(begin, position + len(rows)):
            if at >= position:
                self.log[at % len(self.log)] = rows[at - position]
            state = _next(state, int(self.log[at % len(self.log)]))
            if at + 1 in saves:
                self.slots[saves[at + 1]] = state
        self.slots[target] = state

    def copy_out(self, slot: int, out: Bytes) -> None:
        out.view(np.int64)[0] = self.slots[slot]

    def copy_in(self, slot: int, copied: Bytes) -> None:
        self.slots[slot] = copied.view(np.int64)[0]


def state_of(rows: Sequence[int]) -> int:
    """What a slot must hold after these rows."""
    state = 0
    for row in rows:
        state = _next(state, row)
    return state


def _next(state: int, row: int) -> int:
    return (31 * state + row + 1) % _PRIME
