"""Positions of a cache on a CUDA device, copied out and in.

Owns which parts of the caches hold a position. Knows no token and not what the copies are for.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..ops import Bytes
from .attention import CudaHeadRows


class CudaPositions:
    """A copy has the keys of all layers, then the values and, with 8bit, the scales of both."""

    unit = 1

    def __init__(self, keys: Sequence[CudaHeadRows], values: Sequence[CudaHeadRows]) -> None:
        """Raises ValueError unless the layers follow each other in memory."""
        first = keys[0]
        self.layout = f"cuda {first.format} {len(keys)}x{len(first.rows)}x{first.head_dim}"
        # Each (layers * heads, positions, elements).
        self._parts = [_whole([cache.rows for cache in kind]) for kind in (keys, values)]
        for kind in (keys, values):
            scales = [cache.scales for cache in kind if cache.scales is not None]
            if scales:
                self._parts.append(_whole(scales))

    def n_bytes(self, n: int) -> int:
        return sum(_copy_bytes(part, n) for part in self._parts)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        for rows, copied in self._pairs(start, stop, out, n_copied=stop - start):
            copied.copy_(rows)

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        for rows, part in self._pairs(start, stop, copied, n_copied=n_copied):
            # One contiguous transfer, then into its places.
            rows.copy_(part.to(rows.device)[:, : stop - start])

    def _pairs(
        self, start: int, stop: int, memory: Bytes, *, n_copied: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Per part: these positions in the cache, and all positions of a copy in `memory`."""
        if not 0 <= stop - start <= n_copied:
            raise ValueError(f"positions {start} to {stop} of a copy of {n_copied}")
        end = 0
        for part in self._parts:
            begin, end = end, end + _copy_bytes(part, n_copied)
            flat = torch.from_numpy(memory[begin:end]).view(part.dtype)
            yield part[:, start:stop], flat.view(len(part), n_copied, part.shape[2])


def _copy_bytes(part: Tensor, n: int) -> int:
    return len(part) * n * part.shape[2] * part.itemsize


def _whole(layers: Sequence[Tensor]) -> Tensor:
    """(layers * heads, positions, elements) over the same memory, so that a copy is one call."""
    first = layers[0]
    storage = first.untyped_storage().data_ptr()
    for index, layer in enumerate(layers):
        if layer.shape != first.shape or not layer.is_contiguous():
            raise ValueError(f"layer {index}: expected {tuple(first.shape)}, without gaps")
        # A device's allocator may put separate tensors side by side, too.
        is_next = layer.data_ptr() == first.data_ptr() + index * first.nbytes
        if not is_next or layer.untyped_storage().data_ptr() != storage:
            raise ValueError("layers must follow each other in memory, in one allocation")
    n_heads, n_positions = first.shape[:2]
    n_elements = first.shape[2] if first.ndim == 3 else 1
    shape = (len(layers) * n_heads, n_positions, n_elements)
    return first.as_strided(shape, (n_positions * n_elements, n_elements, 1))
