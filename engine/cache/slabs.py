"""The memory that holds copies of keys and values, within a budget.

Owns slabs of one size, which block holds which, and which was longest unused. Knows no tree: who
touches a path from its end to its beginning is told the ends of paths first.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ..device.ops import Bytes
from .tree import Block

logger = logging.getLogger(__name__)

# Fresh memory costs more than the copy into it, least in large pages.
_BLOCK_BYTES = 32 * 2**20


class BlockMemory:
    """Slabs of `slab_bytes`, `budget` bytes in all; memory once taken from the system is kept."""

    def __init__(self, slab_bytes: int, budget: int, allocate: Callable[[int, int], Bytes]) -> None:
        """`allocate(n, slab_bytes)` gives (n, slab_bytes), or raises MemoryError."""
        self.slab_bytes = slab_bytes
        self._allocate = allocate
        self.capacity = budget // slab_bytes
        self._free: list[Bytes] = []
        self._n_slabs = 0
        self._held: OrderedDict[bytes, Block] = OrderedDict()  # the longest unused first

    @property
    def n_held(self) -> int:
        """Blocks in memory."""
        return len(self._held)

    def take(self) -> Bytes | None:
        """A slab that no block holds; None when there is no more."""
        if not self._free:
            self._grow()
        return self._free.pop() if self._free else None

    def give_back(self, slab: Bytes) -> None:
        self._free.append(slab)

    def hold(self, block: Block, slab: Bytes) -> None:
        """From now on the slab is the block's, as the last used."""
        block.slab = slab
        self._held[block.key] = block

    def release(self, block: Block) -> None:
        """The block's slab is free again, if it has one."""
        if self._held.pop(block.key, None) is not None and block.slab is not None:
            self._free.append(block.slab)
            block.slab = None

    def touch(self, path: Sequence[Block]) -> None:
        """`path` was used. Each of its blocks becomes younger than those behind it."""
        for block in reversed(path):
            if block.key in self._held:
                self._held.move_to_end(block.key)

    def oldest(self, kept: Container[bytes]) -> Block | None:
        """The longest unused, of those whose keys are not in `kept`."""
        return next((block for key, block in self._held.items() if key not in kept), None)

    def __iter__(self) -> Iterator[Block]:
        """The longest unused first."""
        return iter(list(self._held.values()))

    def _grow(self) -> None:
        n = min(max(1, _BLOCK_BYTES // self.slab_bytes), self.capacity - self._n_slabs)
        if n <= 0:
            return
        try:
            slabs: Iterable[Bytes] = self._allocate(n, self.slab_bytes)
        except MemoryError:
            logger.warning("prefix cache: no memory beyond %d blocks", self._n_slabs)
            self.capacity = self._n_slabs
            return
        self._free.extend(slabs)
        self._n_slabs += n
