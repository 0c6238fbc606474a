"""Memory that native code works in. Owns its alignment, its large pages, what ops share, and what
weights are read into before they are packed.
"""

import mmap
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ...native import cpu as native

CACHE_LINE = 64  # panels are read in these

Floats = npt.NDArray[np.float32]


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros that begin on a cache line; the system gives their pages when they are first used."""
    wanted = np.dtype(dtype)
    n_bytes = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = np.zeros(n_bytes + CACHE_LINE, np.uint8)
    begin = -native.address(memory) % CACHE_LINE
    return memory[begin : begin + n_bytes].view(wanted).reshape(shape)


LARGE_PAGE = 2 * 2**20
_SLAB_BYTES = 64 * 2**20


class LargePages:
    """Memory for weights, one piece after another in the order in which they were asked for.

    A decode step reads all weights in that order. Processors prefetch memory page by page, so a
    small matrix in memory of its own, or in small pages, is read at three quarters of the speed
    (bench/RESULTS.md). A slab is freed with the last piece of it. Activations lie in such memory
    too, because the system gives large pages sooner than small ones.
    """

    def __init__(self) -> None:
        self._slab = self._free = np.empty(0, np.uint8)
        self._n_taken = 0  # bytes since `reuse`

    def take(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory (n_bytes,) that begins on a cache line: zeros, unless it is reused or was worked
        in. Raises MemoryError.
        """
        memory = self.ahead(n_bytes)
        n_lines = -(-n_bytes // CACHE_LINE)
        self._n_taken += n_lines * CACHE_LINE
        self._free = self._free[n_lines * CACHE_LINE :]
        return memory

    def ahead(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """The memory (n_bytes,) of the next pieces, to work in until they are taken. Raises
        MemoryError.
        """
        if n_bytes > self._free.size:
            self._slab = self._free = _slab(max(n_bytes, _SLAB_BYTES))
        return self._free[:n_bytes]

    def reuse(self) -> None:
        """Nobody needs the pieces any more: the next ones may lie where they are."""
        if self._n_taken > self._slab.size:  # several slabs
            self._slab = _slab(self._n_taken)
        self._free, self._n_taken = self._slab, 0


def _slab(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Memory that begins on a large page. The system gives its pages when they are first used."""
    try:
        slab = mmap.mmap(-1, n_bytes + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{n_bytes} bytes for weights: {error.strerror}") from error
    with suppress(OSError):  # a system without large pages: it is slower, not wrong
        slab.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(slab, np.uint8)
    begin = -native.address(memory) % LARGE_PAGE
    return memory[begin : begin + n_bytes]


class Scratch:
    """Memory that ops work in, one op at a time: all programs of a device share it."""

    def __init__(self) -> None:
        self._pages = LargePages()
        self._blocks = [np.empty(0, np.uint8)]  # all of them, because earlier ops point to them

    def of(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """At least `n_bytes` that begin on a cache line, with all pages touched: otherwise the
        first prompt would wait for them. They are valid as long as this object lives.
        """
        if n_bytes > self._blocks[-1].size:
            self._blocks.append(self._pages.take(n_bytes))
            self._blocks[-1].fill(0)
        return self._blocks[-1]


_LARGEST_READ = 256 * 2**20  # larger arrays are few, and are not kept


class ReadMemory:
    """Memory for arrays that are read from files one after another. What nobody refers to any more
    is given out again: the system takes longer to give new pages than to fill them from a file that
    it has in memory.
    """

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[np.uint8]] = []

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Like numpy.empty."""
        wanted = np.dtype(dtype)
        n_bytes = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
        if not LARGE_PAGE <= n_bytes <= _LARGEST_READ:
            return np.empty(shape, wanted)
        return self._block(n_bytes)[:n_bytes].view(wanted).reshape(shape)

    def _block(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """The smallest one that is free and large enough, or a new one."""
        # Each array over a block, and each view of such an array, refers to the block itself. One
        # reference is the list's, and one the argument's.
        free = [i for i in range(len(self._blocks)) if sys.getrefcount(self._blocks[i]) == 2]
        fitting = [self._blocks[i] for i in free if self._blocks[i].size >= n_bytes]
        if fitting:
            return min(fitting, key=lambda block: block.size)
        self._blocks.append(np.empty(n_bytes, np.uint8))
        return self._blocks[-1]
