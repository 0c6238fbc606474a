"""A KV cache whose content can be checked: a position holds a hash of all tokens up to it."""

import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.cache.kv import KVCache
from engine.cache.round import Round
from engine.checkpoint.recurrent import StateShape
from engine.device.ops import Bytes, KVMemory, KVShape, Ops
from tests.support.toy_states import ToyMemory, state_of

UNIT = 4
Words = npt.NDArray[np.uint32]


class ToyPositions:
    """Copies whole units of positions, as panels do."""

    unit = UNIT
    layout = "toy"

    def __init__(self, memory: Words) -> None:
        self.memory = memory
        self.fails = False
        self.round = np.zeros(0, np.uint32)
        """The same of a layer that holds some positions only, modulo their number."""

    def n_bytes(self, n: int) -> int:
        return 4 * _padded(n) * (2 if len(self.round) else 1)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        return np.empty((n_slabs, n_bytes), np.uint8)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        assert start % UNIT == 0
        n = _padded(stop - start)
        self._maybe_fail()
        words = out[: self.n_bytes(n)].view(np.uint32)
        words[:n] = self.memory[start : start + n]
        if len(self.round):
            words[n:] = self.round[np.arange(start, start + n) % len(self.round)]

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        assert start % UNIT == 0
        assert stop - start <= n_copied
        n = _padded(stop - start)
        self.memory[start : start + n] = 0
        self._maybe_fail()
        words = copied[: self.n_bytes(n_copied)].view(np.uint32)
        self.memory[start : start + n] = words[:n]
        if len(self.round):
            second = words[_padded(n_copied) :]
            for i in range(n):
                self.round[(start + i) % len(self.round)] = second[i]

    def _maybe_fail(self) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")


class ToyCache(KVCache):
    """K or V of one layer without heads, and perhaps of one with a window or a state."""

    positions: ToyPositions

    def __init__(
        self, max_seq_len: int, *, n_round: int = 0, window: int = 0, has_states: bool = False
    ) -> None:
        """`n_round`: the positions that the layer with a window holds; 0: there is none."""
        shapes = [StateShape(1, 1)] if has_states else []
        config: Any = SimpleNamespace(
            layers=[], kv_shapes=[(1, 1)], kv_windows=[0], kv_places=[], state_shapes=shapes
        )
        ops = _ToyOps()
        super().__init__(config, cast(Ops, ops), max_seq_len=max_seq_len)
        self._of_rows = ops.states
        self.positions.round = np.zeros(n_round, np.uint32)
        self._round = Round(n_round, window, UNIT)

    def run(self, token_ids: Sequence[int]) -> None:
        """Does what a model does: writes after the end, then appends."""
        for token_id in token_ids:
            self.begin_pass(1)
            content = _content([*self.token_ids, token_id])
            self.positions.memory[self.length] = content
            if self.goes_round:
                self.positions.round[self.length % len(self.positions.round)] = content
            if self._of_rows is not None:
                self._of_rows.run(self.length, [token_id])
            self.append([token_id])

    def check(self) -> None:
        """Check that every position holds the hash of its tokens."""
        for i in range(self.length):
            assert self.positions.memory[i] == _content(self.token_ids[: i + 1]), f"position {i}"
        for i in range(self.first_kept if self.goes_round else self.length, self.length):
            held = self.positions.round[i % len(self.positions.round)]
            assert held == _content(self.token_ids[: i + 1]), f"position {i}, with a window"
        state = None if self.states is None else self.states.snapshot(self.length)
        if state is not None:
            assert state.view(np.int64)[0] == state_of(self.token_ids), "the state at the end"


class _ToyOps:
    prefill_rows = 1
    goes_round = False
    states: ToyMemory | None = None

    def state_memory(self, shapes: Any, *, n_slots: int, n_logged: int) -> ToyMemory:
        self.states = ToyMemory(n_slots, n_logged)
        return self.states

    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        return KVMemory([], [], ToyPositions(np.zeros(_padded(shapes[0][1]), np.uint32)))


def _padded(n: int) -> int:
    return -(-n // UNIT) * UNIT


def _content(token_ids: Sequence[int]) -> int:
    return zlib.crc32(np.array(token_ids, np.int32).tobytes())
