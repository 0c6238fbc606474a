"""Copies of the states of recurrent layers, each after the beginning of a past sequence.

Owns which of them are in memory and on disk, and which makes room: the one that saves the least
work, the longest unused first. A state is found by the token ids before it; without their keys and
values, of which nothing is known here, it is of no use.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..device.ops import Bytes
from .files import PrefixFiles
from .kv import KVCache
from .slabs import BlockMemory
from .states import KEPT_ROWS, RecurrentStates
from .tree import Block, PrefixTree, packed

# Tokens of a sequence for which a state is expected: about a chunk of the prefill.
_TOKENS_PER_STATE = 256


class StatePoint(NamedTuple):
    """Where there is a copy."""

    position: int
    block: Block
    """The token ids before the state, as far as they share a block."""


@dataclass(slots=True)
class _Worth:
    """Why a copy in memory is kept. A price is `n_saved` above that of the last copy that made
    room, as in GreedyDual (Young 1994): what is not used falls behind, the cheap first.
    """

    n_saved: int  # tokens that would be computed again without it
    before: bytes | None  # the copy in memory from which they would be
    price: int


class SavedStates:
    """Those of one model."""

    def __init__(
        self, cache: KVCache, states: RecurrentStates, *, block: int, byte_budget: int
    ) -> None:
        """`states`: those of the active sequence, which `cache` holds. `block`: of the keys."""
        self._cache = cache
        self._states = states
        self._block = block
        self._memory = BlockMemory(states.n_bytes, byte_budget, cache.positions.host_memory)
        self._tree = PrefixTree(block)
        self._worth: dict[bytes, _Worth] = {}  # of the copies in memory, the last used last
        self._clock = 0
        self._files: PrefixFiles | None = None
        self._staged: Bytes | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the copies in memory."""
        return self._memory.n_held * self._memory.slab_bytes

    @property
    def capacity(self) -> int:
        """Copies that memory has room for."""
        return self._memory.capacity

    def use_files(self, files: PrefixFiles) -> None:
        """What memory has no room for goes to `files`."""
        self._files = files
        self._staged = np.empty(self._memory.slab_bytes, np.uint8)

    def add_file(self, block: Block) -> None:
        """An earlier process left this copy on disk."""
        self._tree.add(block)

    def is_in_memory(self, key: bytes) -> bool:
        return key in self._memory

    def pass_ends(self, wanted: Sequence[int]) -> list[int]:
        """At which of these positions a pass over a prompt should end, so that `keep` copies the
        states there: not near the end of the active sequence, nor near each other.
        """
        ends, last = [], self._cache.length
        for position in sorted(wanted) if self.capacity else ():
            if position - last >= KEPT_ROWS:
                ends.append(position)
                last = position
        return ends

    def keep(self, root: bytes, *, kept: Container[bytes] = ()) -> None:
        """Copies the states at the end of the active sequence, unless there is a copy near it or
        they are not held. Copies with the keys `kept` stay in memory.
        """
        position, ids = self._cache.length, packed(self._cache.token_ids)
        if not self.capacity or not self._states.holds(position):
            return
        nearest = next(self._points(root, ids), None)
        n_saved = position - (nearest.position if nearest else 0)
        if n_saved < KEPT_ROWS:
            return
        slab = self._room(kept)
        if slab is None:
            return
        self._states.copy_out(position, slab)
        block = Block(*self._tree.links(root, ids)[-1], is_state=True)
        self._tree.add(block)
        self._memory.hold(block.key, slab)
        before = nearest.block.key if nearest and nearest.block.key in self._memory else None
        self._worth[block.key] = _Worth(n_saved, before, self._clock + n_saved)

    def before(self, root: bytes, token_ids: list[int], n_active: int) -> tuple[int, bytes | None]:
        """The last position in `token_ids` whose states are there, and the key of their copy,
        unless the active sequence, which has the first `n_active`, has them itself.
        """
        n_reachable = self._cache.reachable(n_active)
        point = next(self._points(root, packed(token_ids)), None)
        if point is None or point.position <= n_reachable:
            return n_reachable, None
        return point.position, point.block.key

    def restore(self, root: bytes, token_ids: list[int]) -> Literal["memory", "disk"] | None:
        """Takes the cache, which has the keys and values of `token_ids`, back to the last position
        of which there is a copy. Returns where that was; None if the cache reaches further itself.
        """
        n_reachable = self._cache.reachable(len(token_ids))
        for point in self._points(root, packed(token_ids)):
            if point.position <= n_reachable:
                break
            source: Literal["memory", "disk"] = "memory"
            copied = self._memory.get(point.block.key)
            if copied is None:
                copied, source = self._read(point.block), "disk"
            else:
                self._touch(point.block.key)
            if copied is not None:
                self._cache.return_to(point.position, copied)
                return source
        return None

    def write_all(self) -> None:
        """Writes to disk what is only in memory."""
        if self._files is not None:
            for key, slab in self._memory.items():
                self._files.write(self._tree[key], slab)

    def keep_only(self, is_sound: Callable[[Block], bool]) -> None:
        """Drops all other copies, on disk, too."""
        for block in self._tree.blocks():
            if not is_sound(block):
                self._release(block.key)
                if self._files is not None:
                    self._files.remove(block)
                self._tree.remove(block)

    def lose_file(self, block: Block) -> None:
        """The file of this copy is gone."""
        if block.key not in self._memory:
            self._tree.remove(block)

    def _points(self, root: bytes, ids: bytes) -> Iterator[StatePoint]:
        """The copies along a sequence, the last first."""
        links = self._tree.links(root, ids)
        for index in reversed(range(len(links))):
            parent, piece = links[index]
            children = (each for each in self._tree.children(parent) if piece.startswith(each.ids))
            for child in sorted(children, key=lambda each: -each.n_tokens):
                yield StatePoint(index * self._block + child.n_tokens, child)

    def _read(self, block: Block) -> Bytes | None:
        if self._files is None or self._staged is None:
            return None
        if not self._files.read(block, self._staged):
            return None
        self._files.touch([block])
        return self._staged

    def _touch(self, key: bytes) -> None:
        """The copy was used."""
        worth = self._worth.pop(key)
        worth.price = self._clock + worth.n_saved
        self._worth[key] = worth

    def _room(self, kept: Container[bytes]) -> Bytes | None:
        """A free slab. If there is none, the copy of the lowest price makes room."""
        slab = self._memory.take()
        if slab is not None:
            return slab
        others = (key for key in self._worth if key not in kept)
        key = min(others, key=lambda each: self._worth[each].price, default=None)
        if key is None:
            return None
        self._clock = self._worth[key].price
        block, data = self._tree[key], self._memory.get(key)
        if self._files is not None and data is not None and self._deserves_disk(key):
            self._files.write(block, data, kept=kept)
        self._release(key)
        if self._files is None or block not in self._files:
            self._tree.remove(block)
        return self._memory.take()

    def _deserves_disk(self, key: bytes) -> bool:
        """Whether a copy is no larger than the keys and values of the tokens that it saves. Others
        would take the disk's time in the middle of a prompt, and the place of those keys.
        """
        of_keys = self._cache.positions.n_bytes(self._block) * self._worth[key].n_saved
        return self._memory.slab_bytes * self._block <= of_keys

    def _release(self, key: bytes) -> None:
        """Frees the slab. What would be computed from this copy is computed from further back."""
        self._memory.release(key)
        gone = self._worth.pop(key, None)
        if gone is None:
            return
        for each in self._worth.values():
            if each.before == key:
                each.before = gone.before
                each.n_saved += gone.n_saved
                each.price += gone.n_saved


def byte_shares(budget: int, *, state: int, block: int, block_tokens: int) -> tuple[int, int]:
    """How much of a budget copies of states get, and those of keys and values.

    `state`, `block`: the bytes of one copy. The shares are those of a long sequence, but states,
    which may be much larger, get no more than half, and room for one. Without room for either
    neither gets anything: one is of no use without the other.
    """
    if budget < state + block:
        return 0, 0
    per_state = block * _TOKENS_PER_STATE // block_tokens
    share = min(budget // 2, budget * state // (state + per_state))
    of_states = max(share // state, 1) * state
    return of_states, budget - of_states
