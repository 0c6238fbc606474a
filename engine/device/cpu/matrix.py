"""Matrices in panels, as csrc/layout.h describes them.

Owns which row goes where, and the call that packs and rounds. Knows no file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoint.stored import as_float32
from ...gguf.blocks import BlockRows
from ...gguf.decode import dequantize
from ...native import cpu as native
from ...native.cpu import kernels
from ..formats import EXACT_FORMATS, GGUF_FORMATS, IN_SUPER_BLOCKS, PANEL_ROWS, matrix_bytes
from ..ops import NotFiniteError, Stored
from .memory import Floats, LargePages

_LAYOUTS = {
    "float32": "F32",
    "bfloat16": "BF16",
    "8bit": "Q8",
    "6bit": "Q6",
    "5bit": "Q5",
    "4bit": "Q4",
    **{format_: format_.upper() for format_ in GGUF_FORMATS},
    "q3_k": "Q6_K",  # which has room for it without loss
}
# Nothing is rounded into these.
_ONLY_BLOCKS = set(GGUF_FORMATS) - set(IN_SUPER_BLOCKS.values())
_SOURCES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PanelMatrix:
    """A matrix (n_out, n_in) in panels."""

    panels: npt.NDArray[np.uint8]
    n_out: int
    n_in: int
    format: str  # as device/formats.py names it
    is_woven: bool  # see csrc/layout.h, here and below
    is_fetched: bool = False

    @property
    def n_bytes(self) -> int:
        return self.panels.nbytes

    @property
    def sections(self) -> tuple["PanelMatrix", ...]:
        return (self,)

    @property
    def layout(self) -> Any:
        return getattr(kernels.Layout, _LAYOUTS[self.format])

    def place(self) -> kernels.Matrix:
        return kernels.Matrix(
            panels=native.address(self.panels),
            n_out=self.n_out,
            n_in=self.n_in,
            layout=self.layout,
            is_woven=self.is_woven,
            is_fetched=self.is_fetched,
        )


@dataclass(frozen=True, slots=True)
class StackedMatrix:
    """Matrices of several formats, one below the other, multiplied as one."""

    sections: tuple[PanelMatrix, ...]

    @property
    def n_out(self) -> int:
        return sum(section.n_out for section in self.sections)

    @property
    def n_in(self) -> int:
        return self.sections[0].n_in

    @property
    def format(self) -> str:
        return "+".join(section.format for section in self.sections)

    @property
    def n_bytes(self) -> int:
        return sum(section.n_bytes for section in self.sections)


CpuMatrix = PanelMatrix | StackedMatrix


def stacked(sections: Sequence[PanelMatrix]) -> CpuMatrix:
    """A single section needs no stack."""
    return sections[0] if len(sections) == 1 else StackedMatrix(tuple(sections))


def pack(
    parts: Sequence[Stored],
    format_: str,
    *,
    gated: bool,
    is_woven: bool,
    is_fetched: bool = False,
    memory: LargePages | None = None,
    importance: Floats | None = None,
) -> PanelMatrix:
    """The parts (n, n_in) one below the other; `gated`: their panels take turns; `memory`: where
    other matrices lie; `importance`: of an error in each column (n_in,), for codes of 6 bits or
    fewer.

    Blocks of a GGUF type stay as they are in the format that holds them, and are decoded for any
    other. Raises NotFiniteError, and ValueError for a format that holds only the blocks of others.
    """
    stored = [part if isinstance(part, BlockRows) else as_array(part) for part in parts]
    if len({_source(part) for part in stored}) > 1:
        stored = [
            dequantize(part) if isinstance(part, BlockRows) else as_float32(part) for part in stored
        ]
    source, (_, n_in) = _source(stored[0]), stored[0].shape
    if format_ in _ONLY_BLOCKS and EXACT_FORMATS.get(source) != format_:
        raise ValueError(f"{format_} holds no weights of {source}")
    if importance is not None:
        native.check("importance", importance, (n_in,), np.float32)
    n_out = sum(len(part) for part in stored)
    order = _panel_order([len(part) for part in stored], alternating=gated)
    addresses = np.append(np.concatenate([_row_addresses(part) for part in stored]), 0)
    rows = addresses[order]
    panels = (memory or LargePages()).take(matrix_bytes(format_, rows.size, n_in))
    matrix = PanelMatrix(panels, n_out, n_in, format_, is_woven, is_fetched)
    bad_row, bad_column = kernels.pack(
        rows=native.address(rows),
        source=getattr(kernels.SourceType, source),
        n_in=n_in,
        layout=matrix.layout,
        is_woven=is_woven,
        panels=native.address(panels),
        n_panels=rows.size // PANEL_ROWS,
        begin_panel=0,
        end_panel=rows.size // PANEL_ROWS,
        importance=native.address(importance),
    )
    if bad_row >= 0:
        raise NotFiniteError((int(order[bad_row]), bad_column))
    return matrix


def as_array(part: Stored) -> npt.NDArray[Any]:
    """What the CPU's `reader` has read, unless it is blocks."""
    assert isinstance(part, np.ndarray)
    return part


def _panel_order(lengths: Sequence[int], *, alternating: bool) -> Indices:
    """Which row stands where in the panels, counted through parts of these lengths; -1: padding.

    `alternating`: the panels of the parts take turns.
    """
    ends = np.cumsum(lengths)
    parts = [np.arange(end - n, end) for n, end in zip(lengths, ends, strict=True)]
    if not alternating:
        parts = [np.concatenate(parts)]
    padded = [np.pad(part, (0, -len(part) % PANEL_ROWS), constant_values=-1) for part in parts]
    return np.stack([part.reshape(-1, PANEL_ROWS) for part in padded], axis=1).ravel()


def _source(part: BlockRows | npt.NDArray[Any]) -> str:
    """Its name as a SourceType, which is that of a GGUF type."""
    return part.type.name if isinstance(part, BlockRows) else _SOURCES[part.dtype.name]


def _row_addresses(part: BlockRows | npt.NDArray[Any]) -> Indices:
    array = part.rows if isinstance(part, BlockRows) else part
    return native.address(array) + array.strides[0] * np.arange(len(array), dtype=np.int64)
