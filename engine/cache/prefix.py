"""Keys and values of past sequences, so that a prompt that begins like one is not computed again.

Owns what a prompt reuses: the active sequence, or a copy of an earlier one in memory or on disk;
and the report about it. Before the active sequence loses positions, they are copied out in blocks;
a later prompt copies them in. Knows no text and no sampling.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ..device.ops import Bytes
from .files import PrefixFiles
from .kv import KVCache
from .reuse import Reuse as Reuse
from .reuse import Source as Source
from .slabs import BlockMemory
from .tree import Block, Match, PrefixTree, model_key, packed, root_key, unpacked

logger = logging.getLogger(__name__)

# How many differing cached tokens to report.
_N_OTHER = 8


class Lookup(NamedTuple):
    """What is known of a prompt, before anything is copied or forgotten."""

    wanted: list[int]
    root: bytes
    found: Match
    """The longest beginning of `wanted` among the copies."""
    n_active: int
    """How much of `wanted` the active sequence begins with; 0 if it is foreign."""
    n_known: int
    """How much need not be computed. It may be less than `n_active` where layers have a window or
    states: they are held for the last positions only, and there may be no copies of others.
    """
    blocks: range
    """Which of the copies to use."""
    active_other: tuple[int, ...]
    """A few tokens that the active sequence has after these."""
    is_foreign: bool
    """Whether the active sequence has another isolation key."""
    lost: Literal["window", "state"]
    """What may be missing of it."""

    @property
    def path(self) -> list[Block]:
        """The copies from the root to the last one to use; empty if none is used."""
        return self.found.path[: self.blocks.stop] if self.blocks else []

    def reuse(self, n: int, source: Source) -> Reuse:
        """The report, once the cache holds the first `n` of the wanted tokens."""
        n_wanted = len(self.wanted)
        other_ids = self.active_other if n == self.n_active else ()
        if not other_ids and n == self.found.n_tokens:
            other_ids = unpacked(self.found.other)[:_N_OTHER]
        if n == n_wanted:
            reason = "all of the prompt is known" if n else "nothing wanted"
        elif n < self.n_known:
            reason = f"the copy of token {n} could not be read"
        elif n < self.n_active:
            reason = f"the {self.lost} before token {self.n_active} is neither held nor copied"
        elif other_ids:
            return Reuse(n, n_wanted, source, n, f"differs at token {n}", other_ids)
        elif n:
            reason = "prompt is longer"
        else:
            reason = "isolation key differs" if self.is_foreign else "nothing cached"
        return Reuse(n, n_wanted, source, None, reason)


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
        """Copies are made in blocks of `block` tokens, `byte_budget` bytes in memory; 0: none.

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
        self._model = model_key(fingerprint, positions.layout, block)
        self._active_root = root_key(self._model, "")
        self._n_kept = 0  # tokens of the active sequence that were copied as it went on
        self._tree = PrefixTree(block)
        # Copied positions are of no use without the states of recurrent layers behind them.
        byte_budget = 0 if cache.states is not None else byte_budget
        self._memory = BlockMemory(positions.n_bytes(block), byte_budget, positions.host_memory)
        if cache.goes_round and self._memory.capacity:
            cache.before_loss = self._keep
        self._files: PrefixFiles | None = None
        self._staged: Bytes | None = None  # on the way from the disk or to it
        if directory is not None and self._memory.capacity:
            self._files = PrefixFiles(
                directory,
                self._model,
                n_bytes=positions.n_bytes,
                budget=disk_budget,
                on_lost=self._forget_unless_held,
            )
            self._staged = np.empty(positions.n_bytes(block), np.uint8)
            for known in self._files.scan():
                self._tree.add(known)

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
        return self._memory.n_held * self._memory.slab_bytes

    def expected(self, token_ids: Sequence[int], *, isolation_key: str = "") -> Reuse:
        """What `prepare` would find now. Changes nothing, not even which copy is the oldest. From
        any thread.
        """
        with self._lock:
            lookup = self._look_up(list(token_ids), root_key(self._model, isolation_key))
            used = [lookup.found.path[index] for index in lookup.blocks]
            missing = [block for block in used if block.key not in self._memory]
        source: Source = "active" if lookup.n_known else "none"
        if used:
            source = "disk" if missing else "memory"
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
        if lookup.n_active < self._cache.length:
            self._save(kept=lookup.path)
        if lookup.root != self._active_root:
            self._cache.clear()
            self._active_root = lookup.root
        self._n_kept = 0
        source = self._restore(lookup)
        self._cache.forget_from(lookup.n_active if source is None else self._cache.length)
        if not self._cache.length:
            source = "none"
        reuse = lookup.reuse(self._cache.length, source or "active")
        if reuse.n_reused < lookup.n_active:
            logger.info("computing from token %d again: %s", reuse.n_reused, reuse.reason)
        return reuse

    def replace(self, identity: bytes) -> bool:
        """Copies what the active sequence would lose, and empties the cache for one of another
        `identity`. Returns False, and does nothing, if that is of another model.
        """
        if not identity.startswith(self._model):
            return False
        with self._lock:
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

    def flush(self) -> None:
        """Writes the active sequence, and whatever is only in memory, to the disk."""
        if self._files is None:
            return
        with self._lock:
            self._save(kept=())
            for key, slab in self._memory.items():
                self._files.write(self._tree[key], slab)

    def _look_up(self, wanted: list[int], root: bytes) -> Lookup:
        active = self._cache.token_ids if root == self._active_root else []
        n_active = self._cache.common_prefix(wanted) if active else 0
        found = self._tree.match(root, packed(wanted), preferred=self._memory)
        n_known, blocks = self._use_of(found.n_tokens, n_active)
        return Lookup(
            wanted,
            root,
            found,
            n_active,
            n_known,
            blocks,
            active_other=tuple(active[n_active : n_active + _N_OTHER]),
            is_foreign=root != self._active_root and self._cache.length > 0,
            lost="window" if self._cache.states is None else "state",
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
        if block.key not in self._memory:
            self._tree.remove(block)
