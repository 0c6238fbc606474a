"""Rows of a matrix as a GGUF file stores them: bytes of blocks.

Owns their shape and how rows are taken out of them. Knows neither the file nor what a block means.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .types import BlockType


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows (n, n_in) of a quantised type. Their bytes may be those of a mapped file."""

    type: BlockType
    rows: npt.NDArray[np.uint8]
    """(n, type.row_bytes(n_in)), or that of each of several matrices; the bytes of a row are
    contiguous.
    """

    @property
    def shape(self) -> tuple[int, int]:
        n, n_bytes = self.rows.shape
        return n, n_bytes // self.type.n_bytes * self.type.columns

    def __len__(self) -> int:
        return len(self.rows)

    def any(self) -> Any:
        """Whether any byte is not 0."""
        return self.rows.any()
