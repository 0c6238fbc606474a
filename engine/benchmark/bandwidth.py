"""The memory read bandwidth of the decoding threads: the upper bound of every decode figure.

Owns a buffer, which it reads on the pool of the native ops. It only reads, as decoding does; a copy
would have another bound.
"""

import time

import numpy as np

from ..device.ops import Ops
from ..device.step import StepState
from ..native import cpu as native
from ..native.cpu import kernels

_REPEATS = 3
_PIECE_WORDS = 2**15  # 256 KiB, which a thread takes at a time
_MOST_PASSES = 1000


class Reader:
    """A buffer that the threads of the native ops read, as an op reads its weights."""

    def __init__(self, n_bytes: int) -> None:
        """To measure memory, the buffer must be far larger than the last-level cache."""
        # Write every page: unwritten pages all map to one zero page, which stays in the cache.
        self._words = np.ones(max(1, n_bytes // 8), np.uint64)
        self._sums = np.zeros(-(-len(self._words) // _PIECE_WORDS), np.uint64)
        self._state = StepState(1)

    def bandwidth(self, n_bytes: int | None = None) -> float:
        """Bytes per second, the best of three. With `n_bytes`, reads only that many bytes at the
        start of the buffer, again and again.
        """
        n_all = len(self._words)
        n_words = n_all if n_bytes is None else max(1, min(n_all, n_bytes // 8))
        passes = min(n_all // n_words, _MOST_PASSES)
        tape = kernels.Tape()
        for _ in range(passes):
            tape.read(
                words=native.address(self._words),
                n_words=n_words,
                piece_words=_PIECE_WORDS,
                sums=native.address(self._sums),
            )
        self._sums[:] = 0
        seconds = []
        for _ in range(_REPEATS):
            start = time.perf_counter()
            tape.run(native.address(self._state.words))
            seconds.append(time.perf_counter() - start)
        if self._sums.sum() != n_words:
            raise RuntimeError("the sums of the words that were read are wrong")
        return 8 * n_words * passes / min(seconds)


def isa() -> str | None:
    """The instruction set of the native kernels in use; None without native kernels."""
    return None if native.MISSING else kernels.isa()


def open_reader(ops: Ops, n_bytes: int) -> Reader | None:
    """A reader for the native ops; None for other ops, which do not run on their pool."""
    return Reader(n_bytes) if ops.name.startswith("native ") else None
