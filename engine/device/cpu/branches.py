"""Keys and values of branches, as csrc/ops.h describes them for branch_attention.

Owns the memory of the tails, and where each row of the next pass stands. Knows no token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..formats import key_value_formats
from ..ops import KVShape
from ..step import StateWords
from .kv import LANES, PanelHeadRows, padded, rows_of_layers


@dataclass(frozen=True, slots=True)
class PanelTails:
    """Of one layer. All layers share `words`: the fork, then (branch, position) of each row."""

    keys: PanelHeadRows  # (n_branches * n_kv_heads, tail_len, head_dim)
    values: PanelHeadRows
    words: StateWords
    n_branches: int


class CpuBranches:
    """The tails of all keys and values of a cache. The system gives their memory page by page when
    it is used.
    """

    def __init__(
        self,
        shapes: Sequence[KVShape],
        format_: str,
        *,
        n_branches: int,
        n_positions: int,
        max_seq_len: int,
    ) -> None:
        self._max_seq_len = max_seq_len
        self.n_positions = n_positions
        self._n_branches = n_branches
        # A tail begins with the panel in which the fork lies.
        length = padded(n_positions + LANES - 1)
        wide = [(n_branches * n_kv_heads, length, head_dim) for n_kv_heads, _, head_dim in shapes]
        keys, values = (rows_of_layers(wide, each) for each in key_value_formats(format_))
        self._words: npt.NDArray[np.int64] = np.zeros(1 + 2 * n_branches, np.int64)
        self.tails = [
            PanelTails(*pair, self._words, n_branches) for pair in zip(keys, values, strict=True)
        ]

    def place(self, fork: int, rows: Sequence[tuple[int, int]]) -> None:
        end = min(fork + self.n_positions, self._max_seq_len)
        branches = {branch for branch, _ in rows}
        if len(branches) < len(rows) or not branches <= set(range(self._n_branches)):
            raise ValueError(f"rows of branches {sorted(branch for branch, _ in rows)}")
        for _, position in rows:
            if not 0 <= fork <= position < end:
                raise ValueError(f"position {position} of a branch that has {fork} to {end - 1}")
        self._words[0] = fork
        self._words[1 : 1 + 2 * len(rows)] = np.array(rows, np.int64).reshape(-1)
