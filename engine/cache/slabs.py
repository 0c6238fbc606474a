"""The memory that holds copies of keys and values, within a budget.

Owns slabs of one size, which chunk holds which, and which was longest unused. Knows no tree: who
touches a path from its end to its beginning is told the ends of paths first.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ..device.ops import Bytes
from .tree import Chunk

logger = logging.getLogger(__name__)

# Fresh memory costs more than the copy into it, least in large pages.
_BLOCK_BYTES = 32 * 2**20


class ChunkMemory:
    """Slabs of `slab_bytes`, `budget` bytes in all; memory once taken from the system is kept."""

    def __init__(self, slab_bytes: int, budget: int, allocate: Callable[[int, int], Bytes]) -> None:
        """`allocate(n, slab_bytes)` gives (n, slab_bytes), or raises MemoryError."""
        self.slab_bytes = slab_bytes
        self._allocate = allocate
        self.capacity = budget // slab_bytes
        self._free: list[Bytes] = []
        self._n_slabs = 0
        self._held: OrderedDict[bytes, Chunk] = OrderedDict()  # the longest unused first

    @property
    def n_held(self) -> int:
        """Chunks in memory."""
        return len(self._held)

    def take(self) -> Bytes | None:
        """A slab that no chunk holds; None when there is no more."""
        if not self._free:
            self._grow()
        return self._free.pop() if self._free else None

    def give_back(self, slab: Bytes) -> None:
        self._free.append(slab)

    def hold(self, chunk: Chunk, slab: Bytes) -> None:
        """From now on the slab is the chunk's, as the last used."""
        chunk.slab = slab
        self._held[chunk.key] = chunk

    def release(self, chunk: Chunk) -> None:
        """The chunk's slab is free again, if it has one."""
        if self._held.pop(chunk.key, None) is not None and chunk.slab is not None:
            self._free.append(chunk.slab)
            chunk.slab = None

    def touch(self, path: Sequence[Chunk]) -> None:
        """`path` was used. Each of its chunks becomes younger than those behind it."""
        for chunk in reversed(path):
            if chunk.key in self._held:
                self._held.move_to_end(chunk.key)

    def oldest(self, kept: Container[bytes]) -> Chunk | None:
        """The longest unused, of those whose keys are not in `kept`."""
        return next((chunk for key, chunk in self._held.items() if key not in kept), None)

    def __iter__(self) -> Iterator[Chunk]:
        """The longest unused first."""
        return iter(list(self._held.values()))

    def _grow(self) -> None:
        n = min(max(1, _BLOCK_BYTES // self.slab_bytes), self.capacity - self._n_slabs)
        if n <= 0:
            return
        try:
            slabs: Iterable[Bytes] = self._allocate(n, self.slab_bytes)
        except MemoryError:
            logger.warning("prefix cache: no memory beyond %d chunks", self._n_slabs)
            self.capacity = self._n_slabs
            return
        self._free.extend(slabs)
        self._n_slabs += n
