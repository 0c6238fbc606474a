"""What differs from one pass of the decoder to the next.

Owns the step state: token ids, position, row count and the abort word, in one block of memory that
native code reads. Knows no weights, no ops and no cache.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The words before the token ids, as struct StepState in csrc/ops.h has them.
_POS, _N_ROWS, _ABORT, _N_HEADER = 0, 1, 2, 8

StateWords = npt.NDArray[np.int64]


class StepState:
    """Which token ids run, and at which position."""

    def __init__(self, max_rows: int) -> None:
        self.pos = self.n_rows = 0
        self.words: StateWords = np.zeros(_N_HEADER + max_rows, dtype=np.int64)
        self._view = self.words.data  # cheaper for single numbers than the array
        self.address: int = self.words.ctypes.data
        """The address of `words`, which do not move."""
        self.abort_word: StateWords = self.words[_ABORT : _ABORT + 1]
        """Not 0 asks the running pass to end. Another thread may write it."""

    def set(self, token_ids: Sequence[int], pos: int) -> None:
        """The next pass runs `token_ids` at positions `pos` and up."""
        self.pos, self.n_rows = pos, len(token_ids)
        view = self._view
        view[_POS] = pos
        view[_N_ROWS] = self.n_rows
        for place, token_id in enumerate(token_ids, start=_N_HEADER):
            view[place] = token_id

    @property
    def aborted(self) -> bool:
        return bool(self.words[_ABORT])

    @property
    def token_ids(self) -> StateWords:
        """(n_rows,)"""
        return self.words[_N_HEADER : _N_HEADER + self.n_rows]
