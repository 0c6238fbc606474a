"""Keys and values of past sequences, so that a prompt that begins like one is not computed again.

Owns what a prompt reuses: the active sequence, or a copy of an earlier one in memory or on disk.
Before the active sequence loses positions, they are copied out in blocks; a later prompt copies
them in. The states of recurrent layers are copied while the sequence is there. Knows no text and no
sampling.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.ops import Bytes
from .files import PrefixFiles
from .kv import KVCache
from .reuse import N_OTHER, Lookup, Reuse, Source
from .saved_states import SavedStates, byte_shares
from .slabs import BlockMemory
from .tree import Block, PrefixTree, model_key, packed, root_key

logger = logging.getLogger(__name__)


class PrefixCache:
    """Fills the cache of the one active sequence with what is known of the next one."""

    def __init__(
        self,
        cache: KVCache,
        *,
        block: int = 64,
        byte_budget: int = 0,
        directory: Path | None = None,
        disk_budget: int = 2**32,
        fingerprint: str = "",
    ) -> None:
        """Copies are made in blocks of `block` tokens, `byte_budget` bytes in memory, those of
        states included; 0: none.

        What memory has no room for goes to `directory`, `disk_budget` bytes at most, where the next
        process finds it. `fingerprint` must differ if keys and values of the same tokens do. Raises
        ValueError for a block size that the cache cannot copy.
        """
        positions = cache.positions
        if block < 1 or block % positions.unit:
            raise ValueError(f"block must be a positive multiple of {positions.unit}, not {block}")
        self._lock = threading.Lock()  # of the copies, for `expected`
        self._cache = cache
        self._block = block
        states = cache.states
        layout = positions.layout if states is None else f"{positions.layout} {states.layout}"
        self._model = model_key(fingerprint, layout, block)
        self._active_root = root_key(self._model, "")
        self._n_kept = 0  # tokens of the active sequence that were copied as it went on
        self._tree = PrefixTree(block)
        self._states: SavedStates | None = None
        if states is not None:
            of_states, byte_budget = byte_shares(
                byte_budget,
                state=states.n_bytes,
                block=positions.n_bytes(block),
                block_tokens=block,
            )
            self._states = SavedStates(cache, states, block=block, byte_budget=of_states)
        self._memory = BlockMemory(positions.n_bytes(block), byte_budget, positions.host_memory)
        if cache.goes_round and self._memory.capacity:
            cache.before_loss = self._keep
        self._files: PrefixFiles | None = None
        self._staged: Bytes | None = None  # on the way from the disk or to it
        if directory is not None and self._memory.capacity:
            self._open_files(directory, disk_budget)

    @property
    def cache(self) -> KVCache:
        """The cache of the active sequence."""
        return self._cache

    @property
    def identity(self) -> bytes:
        """Of the active sequence: what its keys and values depend on except its token ids."""
        return self._model + self._active_root

    @property
    def n_bytes(self) -> int:
        """Bytes of the copies in memory."""
        of_states = self._states.n_bytes if self._states else 0
        return self._memory.n_held * self._memory.slab_bytes + of_states

    @property
    def token_capacity(self) -> int:
        """Tokens whose copied keys and values memory has room for."""
        return self._memory.capacity * self._block

    @property
    def state_capacity(self) -> int:
        """Copies of the states of recurrent layers that memory has room for."""
        return self._states.capacity if self._states else 0

    def expected(self, token_ids: Sequence[int], *, isolation_key: str = "") -> Reuse:
        """What `prepare` would find now. Changes nothing, not even which copy is the oldest. From
        any thread.
        """
        with self._lock:
            lookup = self._look_up(list(token_ids), root_key(self._model, isolation_key))
            in_memory = [lookup.found.path[i].key in self._memory for i in lookup.blocks]
            if self._states and lookup.state:
                in_memory.append(self._states.is_in_memory(lookup.state))
        source: Source = "active" if lookup.n_known else "none"
        if in_memory:
            source = "memory" if all(in_memory) else "disk"
        return lookup.reuse(lookup.n_known, source)

    def prepare(self, token_ids: Sequence[int], *, isolation_key: str = "") -> Reuse:
        """Makes the cache hold the longest known beginning of `token_ids`, or all of them.

        What the active sequence loses by that is copied first. Nothing is shared between different
        isolation keys. Whatever fails, the cache then holds the beginning of a sequence that was
        computed.
        """
        with self._lock:
            return self._prepare(list(token_ids), root_key(self._model, isolation_key))

    def _prepare(self, token_ids: list[int], root: bytes) -> Reuse:
        lookup = self._look_up(token_ids, root)
        self._touch(lookup.path)
        if self._states is not None:
            kept = () if lookup.state is None else (lookup.state,)
            self._states.keep(self._active_root, kept=kept)
        if lookup.n_active < self._cache.length:
            self._save(kept=lookup.path)
        if lookup.root != self._active_root:
            self._cache.clear()
            self._active_root = lookup.root
        self._n_kept = 0
        source = self._restore(lookup)
        length = lookup.n_active if source is None else self._cache.length
        if self._states and (found := self._states.restore(root, token_ids[:length])):
            source = "disk" if source == "disk" else found
        self._cache.forget_from(min(length, self._cache.length))
        if not self._cache.length:
            source = "none"
        reuse = lookup.reuse(self._cache.length, source or "active")
        if reuse.n_reused < (lookup.n_alike if self._states else lookup.n_active):
            logger.info("computing from token %d again: %s", reuse.n_reused, reuse.reason)
        return reuse

    def replace(self, identity: bytes) -> bool:
        """Copies what the active sequence would lose, and empties the cache for one of another
        `identity`. Returns False, and does nothing, if that is of another model.
        """
        if not identity.startswith(self._model):
            return False
        with self._lock:
            if self._states is not None:
                self._states.keep(self._active_root)
            self._save(kept=())
            self._cache.clear()
            self._active_root, self._n_kept = identity.removeprefix(self._model), 0
        return True

    def forget(self) -> None:
        """Forgets the active sequence and the copies of it, alone or as the beginning of others."""
        with self._lock:
            parent = self._active_root
            for ids in self._tree.pieces(packed(self._cache.token_ids)):
                for block in self._tree.children(parent):
                    if block.ids.startswith(ids):
                        self._drop(block)
                parent = Block(parent, ids).key
            self._cache.clear()
            if self._states is not None:
                self._states.keep_only(self._is_copied)

    def pass_ends(self, wanted: Sequence[int]) -> Sequence[int]:
        """At which of these positions of a prompt a pass should end, for `keep_state`."""
        return () if self._states is None else self._states.pass_ends(wanted)

    def keep_state(self) -> None:
        """Copies the states of recurrent layers at the end of the active sequence: another prompt
        may go on from here.
        """
        if self._states is not None:
            with self._lock:
                self._states.keep(self._active_root)

    def discard(self) -> None:
        """Forgets the active sequence, whose numbers are wrong, and all copies that begin with its
        first block: the wrong numbers may have come from them, or gone into them.
        """
        with self._lock:
            found = self._tree.match(self._active_root, packed(self._cache.token_ids))
            self._cache.clear()
            doomed = found.path[:1]
            while doomed:
                block = doomed.pop()
                doomed += self._tree.children(block.key)
                self._drop(block)
            if self._states is not None:
                self._states.keep_only(self._is_copied)

    def flush(self) -> None:
        """Writes the active sequence, and whatever is only in memory, to the disk."""
        if self._files is None:
            return
        with self._lock:
            self._save(kept=())
            for key, slab in self._memory.items():
                self._files.write(self._tree[key], slab)
            if self._states is not None:
                self._states.keep(self._active_root)
                self._states.write_all()

    def _open_files(self, directory: Path, budget: int) -> None:
        positions = self._cache.positions
        state_bytes = 0 if self._cache.states is None else self._cache.states.n_bytes
        self._files = PrefixFiles(
            directory,
            self._model,
            n_bytes=lambda each: state_bytes if each.is_state else positions.n_bytes(each.n_tokens),
            budget=budget,
            on_lost=self._forget_unless_held,
        )
        self._staged = np.empty(positions.n_bytes(self._block), np.uint8)
        if self._states is not None:
            self._states.use_files(self._files)
        for known in self._files.scan():
            if not known.is_state:
                self._tree.add(known)
            elif self._states is not None:
                self._states.add_file(known)

    def _look_up(self, wanted: list[int], root: bytes) -> Lookup:
        active = self._cache.token_ids if root == self._active_root else []
        n_active = self._cache.common_prefix(wanted) if active else 0
        found = self._tree.match(root, packed(wanted), preferred=self._memory)
        state = None
        if self._states is None:
            n_known, blocks = self._use_of(found.n_tokens, n_active)
        else:
            alike = wanted[: max(found.n_tokens, n_active)]
            n_known, state = self._states.before(root, alike, n_active)
            blocks = range(n_active // self._block, -(-n_known // self._block))
            blocks = blocks if n_known > n_active else range(0)
        return Lookup(
            wanted,
            root,
            found,
            n_active,
            n_known,
            blocks,
            state,
            active_other=tuple(active[n_active : n_active + N_OTHER]),
            is_foreign=root != self._active_root and self._cache.length > 0,
            has_states=self._states is not None,
        )

    def _use_of(self, n_found: int, n_active: int) -> tuple[int, range]:
        """How many tokens are known if there are copies of `n_found` and the active sequence has
        `n_active`, and which blocks of the copies that takes.

        Where layers with a window no longer hold what the next token would see, copies bring that
        back.
        """
        cache, block = self._cache, self._block
        n_reachable = cache.reachable(n_active)
        if n_found <= n_reachable:
            return n_reachable, range(0)
        n_known = n_stop = n_found
        n_lost = min(-(-cache.first_kept // block) * block, n_active)
        if n_lost <= n_found <= n_active:
            n_known, n_stop = n_active, n_lost
        start = n_active
        if cache.first_kept > cache.seen_from(n_known):
            start = min(start, cache.seen_from(n_known))
        return n_known, range(start // block, -(-n_stop // block))

    def _keep(self, stop: int) -> None:
        """Layers with a window are about to lose the positions before `stop`."""
        if stop > self._n_kept:
            with self._lock:
                self._save(kept=(), stop=stop)
            self._n_kept = -(-stop // self._block) * self._block

    def _save(self, *, kept: Sequence[Block], stop: int | None = None) -> None:
        """Copies the blocks of the active sequence, or those that begin before `stop`, that are not
        in memory: into memory or to the disk, until both are full. The blocks of `kept` stay where
        they are.
        """
        if stop is not None:
            stop = -(-stop // self._block) * self._block
        ids = packed(self._cache.token_ids[:stop])
        if not self._memory.capacity or self._cache.length < self._block:
            return
        path: list[Block] = []
        parent, start = self._active_root, 0
        in_use = {block.key for block in kept}
        try:
            for piece in self._tree.pieces(ids):
                block = self._tree.find_covering(parent, piece) or Block(parent, piece)
                in_use.add(block.key)
                is_missing = block.key not in self._memory and block.ids == piece
                if is_missing and not self._copied(block, start, in_use):
                    break
                path.append(block)
                parent, start = block.key, start + self._block
        finally:
            # While a sequence goes on, its blocks cannot be the oldest.
            if stop is None:
                self._touch(path)

    def _copied(self, block: Block, start: int, in_use: set[bytes]) -> bool:
        """Whether there is a copy of a block of the active sequence, now if not before."""
        if start < self._cache.first_kept:
            return self._is_on_disk(block)
        return self._copy(block, start, in_use)

    def _copy(self, block: Block, start: int, in_use: set[bytes]) -> bool:
        """Copies a block of the active sequence to memory, or else makes sure that it is on disk.
        Returns False if there is no room.
        """
        slab = self._room(in_use)
        if slab is not None:
            try:
                self._cache.positions.copy_out(start, start + block.n_tokens, slab)
            except BaseException:
                self._memory.give_back(slab)
                raise
            self._memory.hold(block.key, slab)
        elif not self._is_on_disk(block):
            self._copy_to_disk(block, start, in_use)
            if not self._is_on_disk(block):
                return False
        self._tree.add(block)
        # An earlier, shorter end of the same sequence is of no use any more.
        for child in self._tree.children(block.parent):
            if child is not block and block.ids.startswith(child.ids) and child.key not in in_use:
                self._drop(child)
        return True

    def _room(self, in_use: set[bytes]) -> Bytes | None:
        """A free slab. If there is none, the oldest block makes room and may move to the disk."""
        slab = self._memory.take()
        key = self._memory.oldest(in_use) if slab is None else None
        if key is None:
            return slab
        oldest = self._tree[key]
        self._write_with_parents(oldest, self._memory.get(key), in_use)
        self._memory.release(key)
        if not self._is_on_disk(oldest):
            self._tree.remove(oldest)
        return self._memory.take()

    def _copy_to_disk(self, block: Block, start: int, in_use: set[bytes]) -> None:
        if self._staged is None:
            return
        self._cache.positions.copy_out(start, start + block.n_tokens, self._staged)
        self._write_with_parents(block, self._staged, in_use)

    def _write_with_parents(self, block: Block, data: Bytes | None, in_use: set[bytes]) -> None:
        """Writes `data` as the block's copy, and its parents: the next process cannot use a block
        without them.

        They are written later, and so are removed later.
        """
        link: Block | None = block
        while self._files is not None and link is not None and link not in self._files:
            if data is not None:
                self._files.write(link, data, kept={*in_use, block.key})
            link = self._tree.parent_of(link)
            data = None if link is None else self._memory.get(link.key)

    def _restore(self, lookup: Lookup) -> Source | None:
        """Copies in the blocks that the active sequence lacks.

        Returns None, and leaves the active sequence unchanged, if there are none or the first
        cannot be read.
        """
        source: Source | None = None
        for index in lookup.blocks:
            block = lookup.found.path[index]
            copied = self._memory.get(block.key)
            if copied is None:
                copied = self._read(block)
                if copied is None:
                    return source
                source = "disk"
            source = source or "memory"
            start = index * self._block
            stop = min(start + block.n_tokens, lookup.found.n_tokens)
            self._cache.rollback(start)
            self._cache.append_copied(lookup.wanted[start:stop], copied, n_copied=block.n_tokens)
        if source is not None and self._cache.length < lookup.n_known:
            # What follows the copies is still in the cache.
            self._cache.append(lookup.wanted[self._cache.length : lookup.n_known])
        return source

    def _is_copied(self, state: Block) -> bool:
        """Whether there is a copy of the keys and values at these states."""
        return self._tree.find_covering(state.parent, state.ids) is not None

    def _read(self, block: Block) -> Bytes | None:
        if self._files is None or self._staged is None:
            return None
        return self._staged if self._files.read(block, self._staged) else None

    def _is_on_disk(self, block: Block) -> bool:
        return self._files is not None and block in self._files

    def _touch(self, path: Sequence[Block]) -> None:
        self._memory.touch([block.key for block in path])
        if self._files is not None:
            self._files.touch(path)

    def _drop(self, block: Block) -> None:
        self._memory.release(block.key)
        if self._files is not None:
            self._files.remove(block)
        self._tree.remove(block)

    def _forget_unless_held(self, block: Block) -> None:
        if block.is_state and self._states is not None:
            self._states.lose_file(block)
        elif block.key not in self._memory:
            self._tree.remove(block)
