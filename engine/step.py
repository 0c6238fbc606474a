"""What differs from one pass of the decoder to the next.

Owns the step state: token ids, position, row count and the abort word, in one block of memory that
native code reads. Knows no weights, no ops and no cache.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The words before the token ids, as struct StepState in csrc/ops.h has them.
_POS, _N_ROWS, _ABORT, _N_HEADER = 0, 1, 2, 8

Words = npt.NDArray[np.int64]


class StepState:
    """Which token ids run, and at which position."""

    def __init__(self, max_rows: int) -> None:
        self.words: Words = np.zeros(_N_HEADER + max_rows, dtype=np.int64)
        self.abort_word: Words = self.words[_ABORT : _ABORT + 1]
        """Not 0: the pass that runs shall end. Another thread may write it."""

    def set(self, token_ids: Sequence[int], pos: int) -> None:
        """The next pass runs `token_ids` at positions `pos` and up."""
        n_rows = len(token_ids)
        self.words[_POS] = pos
        self.words[_N_ROWS] = n_rows
        self.words[_N_HEADER : _N_HEADER + n_rows] = token_ids

    @property
    def pos(self) -> int:
        return int(self.words[_POS])

    @property
    def n_rows(self) -> int:
        return int(self.words[_N_ROWS])

    @property
    def aborted(self) -> bool:
        return bool(self.words[_ABORT])

    @property
    def token_ids(self) -> Words:
        """(n_rows,)"""
        return self.words[_N_HEADER : _N_HEADER + self.n_rows]
