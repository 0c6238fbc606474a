"""The memory for copies of keys and values, within a budget.

Owns slabs of one size, the key that holds each, and the order of their last use. Knows no block and
no tree: the keys of a path are touched from its end on, so that the ends of paths go first.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence

from ..device.ops import Bytes

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
        self._held: OrderedDict[bytes, Bytes] = OrderedDict()  # the least recently used first

    @property
    def n_held(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def get(self, key: bytes) -> Bytes | None:
        """The slab that the key holds."""
        return self._held.get(key)

    def items(self) -> list[tuple[bytes, Bytes]]:
        """The keys and their slabs, the least recently used first."""
        return list(self._held.items())

    def take(self) -> Bytes | None:
        """A slab that no key holds; None if there is none."""
        if not self._free:
            self._grow()
        return self._free.pop() if self._free else None

    def give_back(self, slab: Bytes) -> None:
        self._free.append(slab)

    def hold(self, key: bytes, slab: Bytes) -> None:
        """Gives the slab to the key, as the most recently used."""
        self._held[key] = slab

    def release(self, key: bytes) -> None:
        """Frees the key's slab, if it holds one."""
        slab = self._held.pop(key, None)
        if slab is not None:
            self._free.append(slab)

    def touch(self, path: Sequence[bytes]) -> None:
        """`path` was used. Each of its keys becomes younger than those after it."""
        for key in reversed(path):
            if key in self._held:
                self._held.move_to_end(key)

    def oldest(self, kept: Container[bytes]) -> bytes | None:
        """The least recently used key that is not in `kept`."""
        return next((key for key in self._held if key not in kept), None)

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
