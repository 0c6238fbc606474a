"""The ops of the decoder in native code, on the CPU.

Owns numpy memory and the packing of stored weights into panels; `program.py` records the passes.
bfloat16 is held as uint16 bit patterns.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoint.config import ModelConfig
from ...checkpoint.safetensors import StoredTensor, stored_values
from ...errors import ModelLoadError
from ...native import cpu as native
from ...native.cpu import kernels
from ...sampling.op import sample
from ..formats import PANEL_ROWS, kv_format, matrix_bytes
from ..memory import host_bytes
from ..ops import NotFiniteError, Stored
from ..threads import helper_processors, thread_count
from .positions import LANES, CpuPositions
from .program import CpuProgram, PanelHeadRows, PanelMatrix

FORMATS = ("float32", "bfloat16", "8bit", "4bit")

_DTYPES = {"float32": np.float32, "bfloat16": np.uint16}
_KV_DTYPES = {**_DTYPES, "8bit": np.int8}
_SOURCES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}
_ALIGNMENT = 64  # a cache line, which panels are read in

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


class CpuOps:
    """Activations are float32, matrices in panels."""

    activation_dtype = "float32"
    packs = True
    is_async = False
    prefill_rows = 512
    sample = staticmethod(sample)

    def __init__(
        self, format_: str, *, kv_cache: str = "auto", n_threads: int | None = None
    ) -> None:
        """`n_threads` holds for the whole process. Raises ModelLoadError for what there is not."""
        if format_ not in FORMATS:
            raise ModelLoadError(
                f"dtype: {format_} needs torch and CUDA; on the CPU there are float32 and bfloat16"
            )
        count = thread_count(n_threads)
        kernels.set_threads(count, helper_processors(count))
        self.format = format_
        self.kv_format = kv_format(kv_cache, format_)
        self.name = f"native {kernels.isa()}"
        self.n_threads = kernels.threads()

    def zeros(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """With all its pages: the first prompt would wait for them otherwise."""
        memory = _zeros(shape, np.dtype(_DTYPES[dtype]))
        memory.fill(0)
        return memory

    def head_rows(self, count: int, shape: tuple[int, int, int]) -> list[PanelHeadRows]:
        n_heads, n_positions, head_dim = shape
        wide = (_padded(n_positions), _padded(head_dim))
        # One block of memory, which the system gives in large pages.
        panels = _zeros((count, n_heads, *wide), np.dtype(_KV_DTYPES[self.kv_format]))
        scales: list[Floats | None] = [None] * count
        if self.kv_format == "8bit":
            scales = list(_zeros((count, n_heads, wide[0]), np.dtype(np.float32)))
        return [
            PanelHeadRows(own, its_scales, *shape, self.kv_format)
            for own, its_scales in zip(panels, scales, strict=True)
        ]

    def positions(
        self, keys: Sequence[PanelHeadRows], values: Sequence[PanelHeadRows]
    ) -> CpuPositions:
        return CpuPositions(keys, values)

    def reader(self) -> AbstractContextManager[Callable[[StoredTensor], npt.NDArray[Any]]]:
        return nullcontext(stored_values)

    def vector(self, parts: Sequence[Stored]) -> Floats:
        vector = np.concatenate([_as_float32(part) for part in parts])
        bad = np.flatnonzero(~np.isfinite(vector))
        if bad.size:
            raise NotFiniteError((int(bad[0]),))
        return vector

    def matrix(self, parts: Sequence[Stored], format_: str, *, gated: bool = False) -> PanelMatrix:
        if len({part.dtype for part in parts}) > 1:
            parts = [_as_float32(part) for part in parts]
        n_out, n_in = sum(len(part) for part in parts), parts[0].shape[1]
        order = _panel_order([len(part) for part in parts], alternating=gated)
        addresses = np.append(np.concatenate([_row_addresses(part) for part in parts]), 0)
        rows = addresses[order]
        panels = _zeros((matrix_bytes(format_, rows.size, n_in),), np.dtype(np.uint8))
        matrix = PanelMatrix(panels, n_out, n_in, format_)
        bad_row, bad_column = kernels.pack(
            rows=native.address(rows),
            source=getattr(kernels.SourceType, _SOURCES[parts[0].dtype.name]),
            n_in=n_in,
            layout=matrix.place()["layout"],
            panels=native.address(panels),
            begin_panel=0,
            end_panel=rows.size // PANEL_ROWS,
        )
        if bad_row >= 0:
            raise NotFiniteError((int(order[bad_row]), bad_column))
        return matrix

    def table(self, values: Floats) -> Floats:
        return values

    def program(self, max_rows: int) -> CpuProgram:
        return CpuProgram(max_rows)

    def wait(self) -> None:
        """Nothing runs."""

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        return matrix_bytes(format_, n_out, n_in)

    def working_bytes(self, config: ModelConfig) -> int:
        return 0

    def available_bytes(self) -> int | None:
        return host_bytes()


def _panel_order(lengths: Sequence[int], *, alternating: bool) -> Indices:
    """Which row stands where in the panels, counted through parts of these lengths; -1: none.

    `alternating`: the panels of the parts take turns.
    """
    ends = np.cumsum(lengths)
    parts = [np.arange(end - n, end) for n, end in zip(lengths, ends, strict=True)]
    if not alternating:
        parts = [np.concatenate(parts)]
    padded = [np.pad(part, (0, -len(part) % PANEL_ROWS), constant_values=-1) for part in parts]
    return np.stack([part.reshape(-1, PANEL_ROWS) for part in padded], axis=1).ravel()


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


def _row_addresses(part: npt.NDArray[Any]) -> Indices:
    return native.address(part) + part.strides[0] * np.arange(len(part), dtype=np.int64)


def _as_float32(part: npt.NDArray[Any]) -> Floats:
    if part.dtype == np.uint16:
        return (part.astype(np.uint32) << 16).view(np.float32)
    return part.astype(np.float32)


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Memory that begins on a cache line."""
    n_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = np.zeros(n_bytes + _ALIGNMENT, np.uint8)
    begin = -native.address(memory) % _ALIGNMENT
    return memory[begin : begin + n_bytes].view(dtype).reshape(shape)
