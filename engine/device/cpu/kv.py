"""Keys and values in panels, as csrc/cpu/attention.h describes them.

Owns their memory, and which parts of the panels hold a position, for copies out and in. Knows no
token and not what the copies are for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ModelLoadError
from ...native import cpu as native
from ..formats import key_value_formats, scale_pairs
from ..ops import Bytes, KVMemory, KVShape
from ..windows import KEY_BLOCK
from .memory import zeros

# As csrc/cpu/attention.h has them.
LANES = 16  # of a panel of keys or values
_WOVEN_DIMS = 64  # of panels of values whose rows take turns
_MAX_HEAD_DIM = 512

# numpy has no bfloat16: its bit patterns are uint16. A byte holds two elements of 4bit.
_DTYPES = {"float32": np.float32, "bfloat16": np.uint16, "8bit": np.int8, "4bit": np.uint8}


@dataclass(frozen=True, slots=True)
class PanelHeadRows:
    """Keys or values of one layer."""

    panels: npt.NDArray[Any]
    scales: npt.NDArray[Any] | None  # of 8bit and 4bit, by csrc/ops.h
    n_kv_heads: int
    max_seq_len: int
    head_dim: int
    format: str  # as device/formats.py names it

    @property
    def shape(self) -> KVShape:
        return self.n_kv_heads, self.max_seq_len, self.head_dim


def kv_memory(shapes: Sequence[KVShape], format_: str, *, n_touched: int) -> KVMemory:
    """Keys and values for each of the shapes. The system gives their memory page by page when it is
    used, but the first `n_touched` positions soon: a thread asks for them, and nobody waits for it.
    Raises ModelLoadError for too wide a head.
    """
    widest = max(head_dim for _, _, head_dim in shapes)
    if widest > _MAX_HEAD_DIM:
        raise ModelLoadError(f"head_dim: the kernels take at most {_MAX_HEAD_DIM}, not {widest}")
    keys, values = (rows_of_layers(shapes, each) for each in key_value_formats(format_))
    positions = CpuPositions(keys, values)
    Thread(target=positions.touch, args=(n_touched,), name="pages").start()
    return KVMemory(keys, values, positions)


def rows_of_layers(shapes: Sequence[KVShape], format_: str) -> list[PanelHeadRows]:
    """Keys or values for each of the shapes; those of equal shape follow each other in memory."""
    alike = {shape: iter(_head_rows(n, shape, format_)) for shape, n in Counter(shapes).items()}
    return [next(alike[shape]) for shape in shapes]


def _head_rows(n_layers: int, shape: KVShape, format_: str) -> list[PanelHeadRows]:
    n_kv_heads, max_seq_len, head_dim = shape
    n_positions, width = padded(max_seq_len), padded(head_dim)
    if format_ == "4bit":
        width //= 2
    # One block of memory, which the system gives in large pages.
    panels = zeros((n_layers, n_kv_heads, n_positions, width), _DTYPES[format_])
    scales: list[npt.NDArray[Any] | None] = [None] * n_layers
    if format_ == "8bit":
        scales = list(zeros((n_layers, n_kv_heads, n_positions), np.float32))
    elif format_ == "4bit":
        n_rows = n_kv_heads * scale_pairs(head_dim)
        scales = list(zeros((n_layers, n_rows, n_positions), np.uint32))
    return [
        PanelHeadRows(own, its_scales, *shape, format_)
        for own, its_scales in zip(panels, scales, strict=True)
    ]


def padded(n: int) -> int:
    """A number of positions or dimensions, as panels store it."""
    return -(-n // LANES) * LANES


class CpuPositions:
    """Copies whole blocks of 16 positions: no panel mixes two blocks. Layers that hold fewer
    positions than a sequence has hold them modulo their number, a multiple of KEY_BLOCK.
    """

    unit = LANES

    def __init__(self, keys: Sequence[PanelHeadRows], values: Sequence[PanelHeadRows]) -> None:
        """Raises ValueError unless layers of one shape follow each other in memory."""
        alike: dict[KVShape, list[tuple[PanelHeadRows, PanelHeadRows]]] = {}
        for pair in zip(keys, values, strict=True):
            alike.setdefault(pair[0].shape, []).append(pair)
        sizes = [f"{len(pairs)}x{heads}x{dim}" for (heads, _, dim), pairs in alike.items()]
        formats = "+".join(dict.fromkeys((keys[0].format, values[0].format)))
        self.layout = f"woven panels {formats} {' '.join(sizes)}"
        self._parts = [part for pairs in alike.values() for part in _parts(pairs)]

    def touch(self, n: int) -> None:
        """Has the system give the pages of the first `n` positions, or of all if there are fewer.
        What is in them stays, so that passes may run meanwhile.
        """
        for part in self._parts:
            _, n_lines, n_blocks, size = part.shape
            n_bytes = min(-(-n // LANES), n_blocks) * size
            for line in range(n_lines):
                heads = part[:, line]
                rows, pitch = native.address(heads), heads.strides[0]
                native.kernels.touch(rows, len(heads), pitch, n_bytes)

    def n_bytes(self, n: int) -> int:
        n_blocks = -(-n // LANES)
        shapes = [part.shape for part in self._parts]
        return sum(n_heads * n_lines * n_blocks * size for n_heads, n_lines, _, size in shapes)

    def host_memory(self, n_slabs: int, n_bytes: int) -> Bytes:
        return np.empty((n_slabs, n_bytes), np.uint8)

    def copy_out(self, start: int, stop: int, out: Bytes) -> None:
        for blocks, copied in self._pairs(start, stop, out, n_copied=stop - start):
            np.copyto(copied, blocks)

    def copy_in(self, start: int, stop: int, copied: Bytes, *, n_copied: int) -> None:
        native.kernels.Tape.drop_begun()  # a pass that has begun may read what changes here
        for blocks, part in self._pairs(start, stop, copied, n_copied=n_copied):
            np.copyto(blocks, part)

    def _pairs(
        self, start: int, stop: int, memory: Bytes, *, n_copied: int
    ) -> Iterator[tuple[Bytes, Bytes]]:
        """Per part, in order: these positions as blocks of the cache, and those of the copy."""
        if start % LANES or not 0 <= stop - start <= n_copied:
            raise ValueError(f"positions {start} to {stop} of a copy of {n_copied}")
        n_blocks, end = -(-n_copied // LANES), 0
        for part in self._parts:
            n_heads, n_lines, length, size = part.shape
            begin, end = end, end + n_heads * n_lines * n_blocks * size
            copied = memory[begin:end].reshape(n_heads, n_lines, n_blocks, size)
            for place, first, n in _runs(start // LANES, -(-stop // LANES), length):
                yield part[:, :, place : place + n], copied[:, :, first : first + n]


def _runs(begin: int, end: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Where blocks `begin` to `end` - 1 lie in a cache of `length` blocks: the place of each run,
    its first block, counted from `begin`, and how many it has.
    """
    if length % (KEY_BLOCK // LANES):
        # Such a cache does not go round.
        if end > length:
            raise ValueError(f"blocks {begin} to {end} of a cache of {length}")
        yield begin, 0, end - begin
        return
    block = begin
    while block < end:
        place = block % length
        n = min(end - block, length - place)
        yield place, block - begin, n
        block += n


def _parts(pairs: Sequence[tuple[PanelHeadRows, PanelHeadRows]]) -> Iterator[Bytes]:
    """The memory of some layers of one shape as (heads of all layers, lines, blocks, bytes of a
    block in a line). A head's keys, and each row of scales, are one line; its values are one for
    each 64 dimensions, of which the last may be fewer.
    """
    keys, values = zip(*pairs, strict=True)
    n_blocks, width = padded(keys[0].max_seq_len) // LANES, padded(keys[0].head_dim)
    yield _blocks(_lines([rows.panels for rows in keys]), 1, n_blocks)
    heads = _lines([rows.panels for rows in values])
    n_whole = width // _WOVEN_DIMS
    end = heads.shape[1] * n_whole * _WOVEN_DIMS // width
    if n_whole:
        yield _blocks(heads[:, :end], n_whole, n_blocks)
    if width % _WOVEN_DIMS:
        yield _blocks(heads[:, end:], 1, n_blocks)
    for of_one_kind in (keys, values):
        scales = [rows.scales for rows in of_one_kind if rows.scales is not None]
        if scales:
            yield _blocks(_lines(scales), 1, n_blocks)


def _lines(arrays: Sequence[npt.NDArray[Any]]) -> Bytes:
    """The same memory of all layers as (layers * rows, bytes), so that a copy is one call."""
    first = arrays[0]
    for index, array in enumerate(arrays):
        native.check("layer", array, first.shape, first.dtype)
        if native.address(array) != native.address(first) + index * first.nbytes:
            raise ValueError("layers must follow each other in memory")
    whole = np.lib.stride_tricks.as_strided(
        first, (len(arrays), *first.shape), (first.nbytes, *first.strides)
    )
    return whole.view(np.uint8).reshape(len(arrays) * len(first), -1)


def _blocks(lines: Bytes, n_lines: int, n_blocks: int) -> Bytes:
    return lines.reshape(len(lines), n_lines, n_blocks, -1)
