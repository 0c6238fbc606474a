"""The memory for copies of keys and values, within a budget.

Owns slabs of one size, which block holds which, and the order of their last use. Knows no tree: the
blocks of a path are touched from its end on, so that the ends of paths go first.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from ..device.ops import Bytes
from .tree import Block

logger = logging.getLogger(__name__)

# Fresh memory costs more than the copy into it; large pages make it cheapest.
_BLOCK_BYTES = 32 * 2**20


class BlockMemory:
    """Slabs of `slab_bytes`, `budget` bytes in all; memory is never returned to the system."""

    def __init__(self, slab_bytes: int, budget: int, allocate: Callable[[int, int], Bytes]) -> None:
        """`allocate(n, slab_bytes)` returns (n, slab_bytes), or raises MemoryError."""
        self.slab_bytes = slab_bytes
        self._allocate = allocate
        self.capacity = budget // slab_bytes
        self._free: list[Bytes] = []
        self._n_slabs = 0
        self._held: OrderedDict[bytes, Block] = OrderedDict()  # the least recently used first

    @property
    def n_held(self) -> int:
        """Blocks in memory."""
        return len(self._held)

    def take(self) -> Bytes | None:
        """A slab that no block holds; None if there is none."""
        if not self._free:
            self._grow()
        return self._free.pop() if self._free else None

    def give_back(self, slab: Bytes) -> None:
        self._free.append(slab)

    def hold(self, block: Block, slab: Bytes) -> None:
        """Gives the slab to the block, as the most recently used."""
        block.slab = slab
        self._held[block.key] = block

    def release(self, block: Block) -> None:
        """Frees the block's slab, if it has one."""
        if self._held.pop(block.key, None) is not None and block.slab is not None:
            self._free.append(block.slab)
            block.slab = None

    def touch(self, path: Sequence[Block]) -> None:
        """`path` was used. Each of its blocks becomes younger than those after it."""
        for block in reversed(path):
            if block.key in self._held:
                self._held.move_to_end(block.key)

    def oldest(self, kept: Container[bytes]) -> Block | None:
        """The least recently used block whose key is not in `kept`."""
        return next((block for key, block in self._held.items() if key not in kept), None)

    def __iter__(self) -> Iterator[Block]:
        """The least recently used first."""
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
