"""Several sequences that share what a cache holds, one row of logits each.

Owns the ways to compute them, which give the same bits: as rows of one pass; for devices without
such passes one after the other; and with recurrent layers, whose states have no positions to copy,
again from the fork. Knows no sampler and no text.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..cache.kv import KVCache
from ..cache.states import KEPT_ROWS
from ..device.arguments import Array
from ..device.ops import BranchMemory, Bytes, Program
from ..device.step import StepState
from ..sampling.logits import Logits, Rows


class BranchRow(NamedTuple):
    """A token of one branch."""

    branch: int
    token_id: int
    position: int
    """In the sequence. All before it have been computed, and those after it are forgotten."""


class Branches(Protocol):
    """Up to 16 branches, numbered from 0."""

    def decode(self, rows: Sequence[BranchRow]) -> Logits:
        """The logits (rows, vocab_size) after each of these tokens, of different branches; valid
        until the next pass. The cache holds afterwards what it held before.
        """
        ...


class SharedPasses:
    """The rows of one pass: weights are read once for all of them."""

    def __init__(
        self,
        cache: KVCache,
        program: Program,
        memory: BranchMemory,
        state: StepState,
        logits: Array,
    ) -> None:
        """`program`: recorded with the tails of `memory`; it writes its rows into `logits`."""
        self._program = program
        self._memory = memory
        self._state = state
        self._logits = logits
        self._fork = cache.length

    def decode(self, rows: Sequence[BranchRow]) -> Logits:
        self._memory.place(self._fork, [(row.branch, row.position) for row in rows])
        self._state.set([row.token_id for row in rows], 0)
        self._program.run(self._state)
        return np.asarray(self._program.rows(self._logits[: len(rows)]))


class _Tail(NamedTuple):
    """Some positions at the end of a sequence."""

    token_ids: tuple[int, ...]  # from the start of the copy on
    copied: Bytes
    first_kept: int  # of the cache then


class PassesInTurn:
    """A pass for each row, on a cache into which the branch's positions are copied."""

    def __init__(self, cache: KVCache, decode: Callable[[int], Rows]) -> None:
        """`decode`: a pass over one token at the end of the cache."""
        self._cache = cache
        self._decode = decode
        self._fork = cache.length
        # Copies begin at a multiple of the device's unit, and so before the fork.
        self._start = self._in_units(self._fork)
        # Where layers with a window hold the last positions only, a long branch takes the place of
        # what the next one sees.
        self._seen_from = self._in_units(cache.seen_from(self._start))
        self._shared = self._copy_from(self._seen_from) if cache.goes_round else None
        self._tails: dict[int, _Tail] = {}

    def decode(self, rows: Sequence[BranchRow]) -> Logits:
        return np.stack([self._logits(row) for row in rows])

    def _logits(self, row: BranchRow) -> Logits:
        cache = self._cache
        if row.position > self._fork:
            self._lay_in(self._start, self._tails[row.branch], row.position)
        logits = self._decode(row.token_id)[0].copy()
        self._tails[row.branch] = self._copy_from(self._start)
        cache.rollback(self._fork)
        if self._shared is not None and not cache.is_whole:
            self._lay_in(self._seen_from, self._shared, self._fork)
        return logits

    def _in_units(self, position: int) -> int:
        return position - position % self._cache.positions.unit

    def _copy_from(self, start: int) -> _Tail:
        """What the cache holds from `start` on."""
        cache, positions = self._cache, self._cache.positions
        copied = positions.host_memory(1, positions.n_bytes(cache.length - start))[0]
        positions.copy_out(start, cache.length, copied)
        return _Tail(tuple(cache.token_ids[start:]), copied, cache.first_kept)

    def _lay_in(self, start: int, tail: _Tail, stop: int) -> None:
        """Makes the cache hold the tail, which begins at `start`, up to `stop`."""
        self._cache.rollback(start)
        self._cache.append_copied(
            tail.token_ids[: stop - start],
            tail.copied,
            n_copied=len(tail.token_ids),
            first_kept=tail.first_kept,
        )


class PassesAgain:
    """Each row goes back to the fork, over the tokens of its branch in one pass, then over its own
    token.
    """

    def __init__(
        self,
        cache: KVCache,
        *,
        decode: Callable[[int], Rows],
        prefill: Callable[[Sequence[int]], object],
        n_positions: int,
    ) -> None:
        """`decode`: a pass over one token at the end of the cache, `prefill`: over any number.
        Branches have at most `n_positions` tokens.
        """
        self._cache = cache
        self._decode = decode
        self._prefill = prefill
        self._fork = cache.length
        self._tails: dict[int, tuple[int, ...]] = {}
        states = cache.states
        # Short branches can be taken back, and a position more, where the stream then goes on.
        self._states = None
        if states is not None and n_positions >= KEPT_ROWS:
            self._states = states.snapshot(self._fork)

    def decode(self, rows: Sequence[BranchRow]) -> Logits:
        return np.stack([self._logits(row) for row in rows])

    def _logits(self, row: BranchRow) -> Logits:
        past = self._tails.get(row.branch, ())[: row.position - self._fork]
        self._prefill(past)
        logits = self._decode(row.token_id)[0].copy()
        self._tails[row.branch] = (*past, row.token_id)
        self._go_back()
        return logits

    def _go_back(self) -> None:
        cache, fork = self._cache, self._fork
        if self._states is None or cache.reaches(fork):
            cache.rollback(fork)
        else:
            cache.return_to(fork, self._states)
