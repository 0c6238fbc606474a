"""The ops of the decoder in native code, on the CPU.

Owns numpy memory and the choice of formats; `matrix.py` and `kv.py` know the panels, `program.py`
records the passes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoint.config import ModelConfig
from ...checkpoint.recurrent import StateShape
from ...checkpoint.stored import as_float32, stored_values
from ...errors import ModelLoadError
from ...native.cpu import kernels
from ...sampling.op import sample
from ...stored_tensor import StoredTensor
from ..formats import QUANTIZED, STORED, Format, kv_format, matrix_bytes, sections
from ..memory import host_bytes
from ..mixed import ModelFormats, mixed_formats, stored_formats
from ..ops import KVMemory, KVShape, NotFiniteError, Stored
from ..threads import helper_processors, thread_count
from ..windows import PASS_ROWS
from .branches import CpuBranches
from .kv import kv_memory
from .matrix import CpuMatrix, PanelMatrix, as_array, pack, stacked
from .memory import Floats, LargePages, ReadMemory, Scratch
from .program import CpuProgram
from .recurrent import CpuStates
from .weave import fastest_order

FORMATS = ("float32", "bfloat16", *QUANTIZED)

_DTYPES = {"float32": np.float32, "bfloat16": np.uint16}  # numpy has no bfloat16


class CpuOps:
    """Activations are float32, matrices in panels."""

    activation_dtype = "float32"
    packs = True
    is_async = False
    needs_first_pass = False
    rows_are_exact = True
    prefill_rows = PASS_ROWS
    decode_rows = 64
    goes_round = True
    sample = staticmethod(sample)

    def __init__(
        self, format_: str, *, kv_cache: str = "auto", n_threads: int | None = None
    ) -> None:
        """`n_threads` applies to the whole process. Raises ModelLoadError for an unknown format."""
        if format_ not in (*FORMATS, STORED):
            raise ModelLoadError(
                f"dtype: {format_} needs torch and CUDA; on the CPU there are float32 and bfloat16"
            )
        count = thread_count(n_threads)
        kernels.set_threads(count, helper_processors(count))
        self.format = format_
        self.calibrates = format_ in ("6bit", "5bit", "4bit")
        self.kv_format = kv_format(kv_cache, format_)
        self.shares_keys = self.kv_format == "4bit"
        self.name = f"native {kernels.isa()}"
        self.n_threads = kernels.threads()
        self._weights = LargePages()
        self._temporary = LargePages()
        self._activations = LargePages()
        self._scratch = Scratch()

    def zeros(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """With all pages touched: otherwise the first prompt would wait for them."""
        wanted = np.dtype(_DTYPES[dtype])
        memory = self._activations.take(wanted.itemsize * math.prod(shape))
        memory.fill(0)
        return memory.view(wanted).reshape(shape)

    def kv_memory(self, shapes: Sequence[KVShape]) -> KVMemory:
        # The first prompt would wait for the pages of the positions that it fills.
        return kv_memory(shapes, self.kv_format, n_touched=self.prefill_rows)

    def state_memory(
        self, shapes: Sequence[StateShape], *, n_slots: int, n_logged: int
    ) -> CpuStates:
        return CpuStates(shapes, n_slots=n_slots, n_logged=n_logged)

    def branch_memory(
        self, shapes: Sequence[KVShape], *, n_branches: int, n_positions: int, max_seq_len: int
    ) -> CpuBranches:
        return CpuBranches(
            shapes,
            self.kv_format,
            n_branches=n_branches,
            n_positions=n_positions,
            max_seq_len=max_seq_len,
        )

    @contextmanager
    def reader(self) -> Iterator[Callable[[StoredTensor], Stored]]:
        # Memory is freed slab by slab: what layers are run in for calibration has slabs of its own.
        activations, self._activations = self._activations, LargePages()
        try:
            yield partial(stored_values, empty=ReadMemory().empty)
        finally:
            self._activations = activations
            self._temporary = LargePages()

    def vector(self, parts: Sequence[Stored], *, plus: float = 0.0, times: float = 1.0) -> Floats:
        vector = np.concatenate([as_float32(as_array(part)) for part in parts])
        vector += np.float32(plus)
        vector *= np.float32(times)
        bad = np.flatnonzero(~np.isfinite(vector))
        if bad.size:
            raise NotFiniteError((int(bad[0]),))
        return vector

    def matrix(
        self,
        parts: Sequence[Stored],
        format_: Format,
        *,
        gated: bool = False,
        importance: Floats | None = None,
        temporary: bool = False,
    ) -> CpuMatrix:
        if not temporary:
            self._temporary.reuse()
        memory = self._temporary if temporary else self._weights
        packed: list[PanelMatrix] = []
        for own, which in sections(format_, len(parts)):
            order = fastest_order(own, kernels.isa(), self._temporary)
            try:
                section = pack(
                    parts[which],
                    own,
                    gated=gated,
                    is_woven=order.is_woven,
                    is_fetched=order.is_fetched,
                    memory=memory,
                    importance=importance,
                )
            except NotFiniteError as error:
                row, column = error.index
                above = sum(each.n_out for each in packed)
                raise NotFiniteError((above + row, column)) from error
            packed.append(section)
        return stacked(packed)

    def table(self, values: Floats) -> Floats:
        return values

    def program(self, max_rows: int) -> CpuProgram:
        return CpuProgram(max_rows, self._scratch)

    def wait(self) -> None:
        """Drops a pass that has begun and was not run."""
        kernels.Tape.drop_begun()

    def formats(self, config: ModelConfig, dtypes: Mapping[str, str]) -> ModelFormats:
        if self.format == STORED:
            return stored_formats(config, dtypes)
        return mixed_formats(config, self.format)

    def matrix_bytes(self, format_: str, n_out: int, n_in: int) -> int:
        return matrix_bytes(format_, n_out, n_in)

    def working_bytes(self, config: ModelConfig) -> int:
        return 0

    def give_back(self) -> None:
        self._weights = LargePages()  # the old ones held the rest of a slab

    def available_bytes(self) -> int | None:
        return host_bytes()
