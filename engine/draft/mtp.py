"""Drafts by a block that follows the model's passes: that of a checkpoint, which predicts one token
more (multi-token prediction), or an EAGLE-3 head.

Owns what the block's cache holds. Its entry for a position is computed from the model's output at
that position and the token after it. The model tells its outputs after each pass, and they are
gone after the next one, so a position whose output was never told (its keys and values were copied)
has no entry. A missing entry makes drafts worse and nothing else: positions are only compared with
each other.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..model.calibration import Floats
from ..model.model import MAX_DECODE_ROWS
from .block import Block
from .confidence import Confidence
from .drafter import Origin, Prospect
from .length import Acceptance
from .row_costs import RowCosts

_PRIOR = 0.6


class BlockDrafter:
    """Greedy drafts, which end early if the block is not sure."""

    def __init__(
        self,
        block: Block,
        cache: KVCache,
        row_costs: RowCosts,
        *,
        origin: Origin,
        most: int,
        target: KVCache,
        min_confidence: float,
    ) -> None:
        """`cache` and `row_costs` are the block's, `target` is the cache of the model that
        verifies. A draft has at most `most` tokens, and ends before its probability as a whole, by
        the block's untouched logits, falls below `min_confidence`.
        """
        self.origin: Origin = origin
        self.block = block
        self._most = most
        self.cache = cache
        self.row_costs = row_costs
        self._target = target
        self._confidence = Confidence(block.model.weights.head.n_out, least=min_confidence)
        self._acceptance = Acceptance(_PRIOR)
        self._isolation_key = ""
        self._tokens: list[int] = []
        self._is_running = False
        self.positions: list[int] = []
        """Of the entries in the cache, ascending."""
        # The outputs that may be needed: those of the positions from `_first` on.
        self._first = 0
        self._outputs: list[Floats] = []

    def begin(
        self,
        prompt_ids: Sequence[int],
        abort: AbortFlag | None = None,
        isolation_key: str = "",
    ) -> None:
        """What the cache and the outputs have of the prompt's beginning stays."""
        n_common = 0
        if isolation_key == self._isolation_key:
            pairs = zip(self._tokens, prompt_ids, strict=False)
            n_common = next(
                (n for n, (old, new) in enumerate(pairs) if old != new),
                min(len(self._tokens), len(prompt_ids)),
            )
        self._isolation_key = isolation_key
        self._acceptance.reset()
        self._forget_from(n_common)
        self._tokens = list(prompt_ids)
        self._is_running = True

    def on_hidden(self, cache: KVCache, outputs: Floats) -> None:
        """The model has computed the last rows of `cache`; (rows, dim)."""
        if cache is not self._target or not self._is_running:
            return
        start = cache.length - len(outputs)
        if not self._first <= start <= self._first + len(self._outputs):
            self._first, self._outputs = start, []
        del self._outputs[start - self._first :]
        self._outputs += [np.array(row) for row in outputs]
        if len(self._outputs) > 2 * MAX_DECODE_ROWS:
            self._add_entries()
            n_old = len(self._outputs) - MAX_DECODE_ROWS
            if self.cache.length < self.cache.max_seq_len:
                # Those without an entry: of the last token, and of a draft until it is accepted.
                n_old = min(n_old, self._missing().start - self._first)
            self._first += n_old
            del self._outputs[:n_old]

    def accept(self, token_id: int) -> None:
        self._tokens.append(token_id)

    def rollback(self, mark: int) -> None:
        self._forget_from(mark)
        del self._tokens[mark:]

    def prospect(self, n_max: int) -> Prospect | None:
        if self._acceptance.is_resting():
            return None
        last = len(self._tokens) - 2
        room = self.cache.max_seq_len - self.cache.length - MAX_DECODE_ROWS
        n_missing = len(self._missing())
        if (
            not n_missing
            or self._first + len(self._outputs) <= last
            or room < self._most + n_missing
        ):
            return None
        table = self.row_costs.table
        passes, rest = divmod(n_missing, MAX_DECODE_ROWS)
        first = passes * table[MAX_DECODE_ROWS] + table[rest]
        # The first token comes with the entries that are missing.
        return Prospect(
            self._acceptance, min(n_max, self._most), first=first - table[1], each=table[1]
        )

    def draft(self, n: int) -> tuple[int, ...]:
        while len(missing := self._missing()) > MAX_DECODE_ROWS:
            self._decode(missing[:MAX_DECODE_ROWS])
        self._confidence.begin()
        drafted: list[int] = []
        index, row = self._decode(missing), len(missing) - 1
        n_entries = self.cache.length
        while index is not None:
            drafted.append(self.block.token_id(index))
            if len(drafted) == n:
                break
            # The next entry is made from the block's own output: it is forgotten again.
            self.block.read_own(row)
            index, row = self._pass(drafted[-1:]), 0
        self.cache.forget_from(n_entries)
        return tuple(drafted)

    def end(self) -> None:
        self._is_running = False

    def _forget_from(self, length: int) -> None:
        """The sequence keeps `length` tokens."""
        n_entries = bisect_left(self.positions, length - 1)
        del self.positions[n_entries:]
        self.cache.forget_from(min(n_entries, self.cache.length))
        del self._outputs[max(length - self._first, 0) :]

    def _missing(self) -> range:
        """Positions whose entries can be computed and were not, before the last token."""
        after = self.positions[-1] + 1 if self.positions else 0
        end = min(self._first + len(self._outputs), len(self._tokens) - 1)
        return range(max(after, self._first), end)

    def _add_entries(self) -> None:
        """Computes what is missing, as far as the cache has room, but not the last entry: the next
        draft begins with its logits.
        """
        missing = self._missing()[: self.cache.max_seq_len - self.cache.length]
        if missing and missing[-1] == len(self._tokens) - 2:
            missing = missing[:-1]
        size = self.block.model.chunk_size
        for start in range(0, len(missing), size):
            some = missing[start : start + size]
            self._read(some)
            self.block.model.prefill([self._tokens[i + 1] for i in some], self.cache)
            self.positions += some

    def _decode(self, positions: range) -> int | None:
        """Adds the entries; what the block guesses after the last one."""
        self._read(positions)
        index = self._pass([self._tokens[i + 1] for i in positions])
        self.positions += positions
        return index

    def _pass(self, token_ids: Sequence[int]) -> int | None:
        """Corrects the costs: between two passes of the model little of the block is in a cache."""
        started = time.perf_counter()
        rows = self.block.model.decode(token_ids, self.cache)
        index = self._confidence.next(np.asarray(rows[len(token_ids) - 1]))
        self.row_costs.observe(len(token_ids), time.perf_counter() - started)
        return index

    def _read(self, positions: range) -> None:
        self.block.read([self._outputs[position - self._first] for position in positions])
