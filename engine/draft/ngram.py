"""Drafts what followed the same tokens earlier in the sequence, or in the pool of recent outputs.

Owns a pool per isolation key, and how much matches of each length were worth so far in this
sequence. The search is in csrc/ngram_index.h, or in `draft/ngram_reference.py` if the native code
was not built.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..abort import AbortFlag
from ..native import cpu as native
from . import ngram_reference as ngram_ref
from .drafter import Origin, Prospect
from .length import Acceptance

POOL_BYTES = 4 << 20
"""Memory for the recent outputs of one isolation key."""
MOST_POOLS = 8

# The least length of a match, and the expected acceptance of its first drafts: longer matches are
# trusted more.
_GRADES = ((1, 0.35), (4, 0.5), (6, 0.65), (10, 0.8), (16, 0.9), (ngram_ref.MAX_MATCH, 0.95))


class _Grades:
    """The acceptance of drafts of one origin, by the length of the match."""

    def __init__(self) -> None:
        self._all = [Acceptance(prior) for _, prior in _GRADES]
        self.of_length = [
            self._all[max(sum(length >= least for least, _ in _GRADES) - 1, 0)]
            for length in range(ngram_ref.MAX_MATCH + 1)
        ]

    def reset(self) -> None:
        for grade in self._all:
            grade.reset()


class NgramDrafter:
    """Costs next to nothing; good where text is copied or repeats itself."""

    def __init__(self, *, pool_bytes: int = POOL_BYTES, most_pools: int = MOST_POOLS) -> None:
        """`pool_bytes`: of each pool; of `most_pools` the one that was used last longest ago gives
        way to another. So what a pool holds depends on the texts of its own key alone.
        """
        index = ngram_ref if native.MISSING else native.kernels
        self._new_index: Callable[[], Any] = partial(index.NgramIndex, pool_bytes)
        self._most_pools = most_pools
        # By isolation key, the one in use last. An index holds a pool, and a running sequence.
        self._indexes = {"": self._new_index()}
        self._index = self._indexes[""]
        self._grades: dict[Origin, _Grades] = {"ngram": _Grades(), "pool": _Grades()}
        self._n_prompt = 0
        self._draft: tuple[int, ...] = ()
        self.origin: Origin = "ngram"
        self._new: list[int] = []  # tokens that the index has yet to learn
        # Not a method: it runs once per token.
        self.accept: Callable[[int], None] = self._new.append

    def pool_size(self, isolation_key: str = "") -> int:
        """How many tokens of recent outputs are kept for a key."""
        index = self._indexes.get(isolation_key)
        return 0 if index is None else int(index.recent_size())

    def begin(
        self,
        prompt_ids: Sequence[int],
        abort: AbortFlag | None = None,
        isolation_key: str = "",
    ) -> None:
        for grades in self._grades.values():
            grades.reset()
        self._index.begin(())
        index = self._indexes.pop(isolation_key, None)
        self._index = self._new_index() if index is None else index
        self._indexes[isolation_key] = self._index
        if len(self._indexes) > self._most_pools:
            del self._indexes[next(iter(self._indexes))]
        self._new.clear()
        self._n_prompt = len(prompt_ids)
        self._index.begin(prompt_ids)

    def rollback(self, mark: int) -> None:
        self._n_prompt = min(self._n_prompt, mark)
        self._learn()
        self._index.rollback(mark)

    def prospect(self, n_max: int) -> Prospect | None:
        found = self._index.find(n_max, self._new)
        self._new.clear()
        if found is None:
            return None
        match_length, is_recent, self._draft = found
        self.origin = "pool" if is_recent else "ngram"
        return Prospect(self._grades[self.origin].of_length[match_length], len(self._draft))

    def draft(self, n: int) -> tuple[int, ...]:
        return self._draft[:n]

    def end(self) -> None:
        self._learn()
        self._index.keep(self._n_prompt)
        self._index.begin(())

    def _learn(self) -> None:
        self._index.extend(self._new)
        self._new.clear()
