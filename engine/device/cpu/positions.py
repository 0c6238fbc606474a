"""Positions of a cache in panels, copied out and in.

Owns which parts of the panels hold some positions. Knows no token and what the copies are for.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...native import cpu as native
from ..ops import Bytes
from .program import PanelHeadRows

LANES = 16  # of a panel of keys or values: csrc/cpu/attention.h


class CpuPositions:
    """In blocks of 16 positions, which no panel mixes with others."""

    unit = LANES

    def __init__(self, keys: Sequence[PanelHeadRows], values: Sequence[PanelHeadRows]) -> None:
        """Raises ValueError for layers that do not lie one behind the other."""
        first = keys[0]
        n_lanes = -(-first.head_dim // LANES)
        self.layout = f"panels {first.format} {len(keys)}x{first.n_heads}x{first.head_dim}"
        # The bytes of a block lie together: once per head of the keys, but once per head and 16
        # dimensions of the values, and the scales of 8bit.
        self._parts = [
            _blocks([rows.panels for rows in keys], first.n_heads),
            _blocks([rows.panels for rows in values], first.n_heads * n_lanes),
        ]
        for of_one_kind in (keys, values):
            scales = [rows.scales for rows in of_one_kind if rows.scales is not None]
            if scales:
                self._parts.append(_blocks(scales, first.n_heads))

    def n_bytes(self, n: int) -> int:
        n_blocks = -(-n // LANES)
        return sum(len(part) * n_blocks * part.shape[2] for part in self._parts)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        return np.empty((n_slabs, n_bytes), np.uint8)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        for blocks, copied in self._pairs(start, stop, out, n_copied=stop - start):
            np.copyto(copied, blocks)

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        for blocks, part in self._pairs(start, stop, copied, n_copied=n_copied):
            np.copyto(blocks, part[:, : blocks.shape[1]])

    def _pairs(
        self, start: int, stop: int, memory: Bytes, *, n_copied: int
    ) -> Iterator[tuple[Bytes, Bytes]]:
        """The blocks of positions in the cache, and all those of a copy in `memory`, per part."""
        if start % LANES or not 0 <= stop - start <= n_copied:
            raise ValueError(f"positions {start} to {stop} of a copy of {n_copied}")
        n_blocks, end = -(-n_copied // LANES), 0
        for part in self._parts:
            begin, end = end, end + len(part) * n_blocks * part.shape[2]
            copied = memory[begin:end].reshape(len(part), n_blocks, part.shape[2])
            yield part[:, start // LANES : -(-stop // LANES)], copied


def _blocks(arrays: Sequence[npt.NDArray[Any]], n_lines: int) -> Bytes:
    """(layers * n_lines, blocks, bytes of a block in a line): the same memory, of all layers, so
    that a copy is one call.
    """
    first = arrays[0]
    for index, array in enumerate(arrays):
        native.check("layer", array, first.shape, first.dtype)
        if native.address(array) != native.address(first) + index * first.nbytes:
            raise ValueError("layers must lie one behind the other")
    whole = np.lib.stride_tricks.as_strided(
        first, (len(arrays), *first.shape), (first.nbytes, *first.strides)
    )
    n_blocks = first.shape[1] // LANES
    return whole.view(np.uint8).reshape(len(arrays) * n_lines, n_blocks, -1)
