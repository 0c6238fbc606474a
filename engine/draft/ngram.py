"""Drafts what followed the same tokens earlier in the sequence, or in a recent output.

Owns how much matches of each length were worth so far in this sequence. The search is in
csrc/ngram_index.h, or in `draft/ngram_reference.py` if the native code was not built.
"""

from collections.abc import Callable, Sequence

from ..abort import AbortFlag
from ..native import cpu as native
from . import ngram_reference as ngram_ref
from .drafter import Origin, Prospect
from .length import Acceptance

RECENT_BYTES = 4 << 20

# The least length of a match, and the expected acceptance of its first drafts: longer matches are
# trusted more.
_GRADES = ((1, 0.35), (4, 0.5), (6, 0.65), (10, 0.8), (16, 0.9))


class NgramDrafter:
    """Costs next to nothing; good where text is copied or repeats itself."""

    origin: Origin = "ngram"

    def __init__(self, *, recent_bytes: int = RECENT_BYTES) -> None:
        """`recent_bytes`: memory for the index of recent outputs."""
        index = ngram_ref if native.MISSING else native.kernels
        self._index = index.NgramIndex(recent_bytes)
        self._grades = [Acceptance(prior) for _, prior in _GRADES]
        lengths = range(ngram_ref.MAX_MATCH + 1)
        self._grade_of = [
            self._grades[max(sum(length >= least for least, _ in _GRADES) - 1, 0)]
            for length in lengths
        ]
        self._n_prompt = 0
        self._draft: tuple[int, ...] = ()
        # Not a method: it runs once per token.
        self.accept: Callable[[int], None] = self._index.append

    @property
    def recent_size(self) -> int:
        """How many tokens of recent outputs are kept."""
        return int(self._index.recent_size())

    def begin(self, prompt_ids: Sequence[int], abort: AbortFlag | None = None) -> None:
        for grade in self._grades:
            grade.reset()
        self._n_prompt = len(prompt_ids)
        self._index.begin(prompt_ids)

    def rollback(self, mark: int) -> None:
        self._n_prompt = min(self._n_prompt, mark)
        self._index.rollback(mark)

    def prospect(self, n_max: int) -> Prospect | None:
        match_length, self._draft = self._index.find(n_max)
        if not self._draft:
            return None
        return Prospect(self._grade_of[match_length], len(self._draft))

    def draft(self, n: int) -> tuple[int, ...]:
        return self._draft[:n]

    def end(self, *, keep: bool = True) -> None:
        if keep:
            self._index.keep(self._n_prompt)
        self._index.begin(())
