"""A KV cache whose content can be checked: a position holds a hash of all tokens up to it."""

import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from engine.cache.kv import KVCache
from engine.device.ops import Bytes, KVMemory, KVShape, Ops

UNIT = 4
Words = npt.NDArray[np.uint32]


class ToyPositions:
    """Copies whole units of positions, as panels do."""

    unit = UNIT
    layout = "toy"

    def __init__(self, memory: Words) -> None:
        self.memory = memory
        self.fails = False

    def n_bytes(self, n: int) -> int:
        return 4 * _padded(n)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        return np.empty((n_slabs, n_bytes), np.uint8)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        assert start % UNIT == 0
        n = _padded(stop - start)
        self._maybe_fail()
        out[: 4 * n].view(np.uint32)[:] = self.memory[start : start + n]

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        assert start % UNIT == 0
        assert stop - start <= n_copied
        n = _padded(stop - start)
        self.memory[start : start + n] = 0
        self._maybe_fail()
        self.memory[start : start + n] = copied[: 4 * n].view(np.uint32)

    def _maybe_fail(self) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")


class ToyCache(KVCache):
    """K or V of one layer without heads."""

    positions: ToyPositions

    def __init__(self, max_seq_len: int) -> None:
        config: Any = SimpleNamespace(kv_shapes=[(1, 1)], kv_places=[], state_shapes=())
        super().__init__(config, cast(Ops, _ToyOps()), max_seq_len=max_seq_len)

    def run(self, token_ids: Sequence[int]) -> None:
        """Does what a model does: writes after the end, then appends."""
        for token_id in token_ids:
            self.positions.memory[self.length] = _content([*self.token_ids, token_id])
            self.append([token_id])

    def check(self) -> None:
        """Check that every position holds the hash of its tokens."""
        for i in range(self.length):
            assert self.positions.memory[i] == _content(self.token_ids[: i + 1]), f"position {i}"


class _ToyOps:
    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        return KVMemory([], [], ToyPositions(np.zeros(_padded(shapes[0][1]), np.uint32)))


def _padded(n: int) -> int:
    return -(-n // UNIT) * UNIT


def _content(token_ids: Sequence[int]) -> int:
    return zlib.crc32(np.array(token_ids, np.int32).tobytes())
