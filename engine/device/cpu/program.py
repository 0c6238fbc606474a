"""Passes of the decoder on the CPU: ops recorded once in native code, run as often as wanted.

Owns the tape of a pass, the memory that its ops share among threads, and a reference to every array
that they point to. Implements `ops.Program`, which says what the ops do. Knows no model and no
checkpoint.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...native import cpu as native
from ...native.cpu import kernels
from ..ops import OpTime
from ..step import StepState

Floats = npt.NDArray[np.float32]

_LAYOUTS = {"float32": "F32", "bfloat16": "BF16", "8bit": "Q8", "4bit": "Q4"}
_KV_TYPES = {"float32": "F32", "bfloat16": "BF16", "8bit": "INT8"}
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class PanelMatrix:
    """A matrix (n_out, n_in) in panels, as csrc/layout.h describes them."""

    panels: npt.NDArray[np.uint8]
    n_out: int
    n_in: int
    format: str  # as device/formats.py names it

    def place(self) -> dict[str, Any]:
        """Where and what it is, as the native ops take it."""
        return {
            "panels": native.address(self.panels),
            "n_out": self.n_out,
            "n_in": self.n_in,
            "layout": getattr(kernels.Layout, _LAYOUTS[self.format]),
        }


@dataclass(frozen=True, slots=True)
class PanelHeadRows:
    """Keys or values of one layer in panels, as csrc/cpu/attention.h describes them."""

    panels: npt.NDArray[Any]
    scales: Floats | None  # of 8bit, one per head and position
    n_heads: int
    max_seq_len: int
    head_dim: int
    format: str  # as device/formats.py names it


class CpuProgram:
    """Ops in order. Arrays of rows are (rows, n) and may have more rows than a pass."""

    def __init__(self, max_rows: int) -> None:
        self._tape = kernels.Tape()
        self._keep_alive: list[object] = []
        self._matrices: list[PanelMatrix | None] = []  # that each op multiplies with
        self._scratch = np.empty(0, np.uint8)
        self._max_rows = max_rows
        self._max_seq_len: int | None = None

    def embed(self, table: PanelMatrix, *, out: Floats) -> None:
        self._check_rows(out=(out, table.n_in))
        self._tape.embed(**table.place(), out=native.address(out))
        self._matrices.append(None)
        self._keep_alive += (table, out)

    def norm_linear(
        self,
        residual: Floats,
        matrix: PanelMatrix,
        *,
        norm: Floats,
        eps: float,
        out: Floats,
        branch: Floats | None = None,
        residual_out: Floats | None = None,
        bias: Floats | None = None,
        gated: bool = False,
    ) -> None:
        kept = residual if residual_out is None else residual_out
        if branch is not None and kept is residual:
            raise ValueError("residual_out: with a branch it must be another array than residual")
        n_in, n_out = matrix.n_in, matrix.n_out
        self._check_rows(
            residual=(residual, n_in),
            branch=(branch, n_in),
            residual_out=(kept, n_in),
            out=(out, n_out // 2 if gated else n_out),
        )
        _check_vectors(norm=(norm, n_in), bias=(bias, n_out))
        self._tape.norm_linear(
            residual_in=native.address(residual),
            branch=native.address(branch),
            residual_out=native.address(kept),
            norm=native.address(norm),
            eps=eps,
            **matrix.place(),
            bias=native.address(bias),
            out=native.address(out),
            epilogue=kernels.Epilogue.SILU_GATE if gated else kernels.Epilogue.NONE,
            scratch=self._scratch_of(kernels.linear_scratch_bytes(n_in, self._max_rows)),
        )
        self._matrices.append(matrix)
        self._keep_alive += (residual, matrix, norm, out, branch, kept, bias)

    def linear(self, x: Floats, matrix: PanelMatrix, *, bias: Floats | None, out: Floats) -> None:
        self._check_rows(x=(x, matrix.n_in), out=(out, matrix.n_out))
        _check_vectors(bias=(bias, matrix.n_out))
        self._tape.linear(
            x=native.address(x),
            **matrix.place(),
            bias=native.address(bias),
            out=native.address(out),
            scratch=self._scratch_of(kernels.linear_scratch_bytes(matrix.n_in, self._max_rows)),
        )
        self._matrices.append(matrix)
        self._keep_alive += (x, matrix, bias, out)

    def attention(
        self,
        qkv: Floats,
        k_cache: PanelHeadRows,
        v_cache: PanelHeadRows,
        *,
        n_heads: int,
        q_norm: Floats | None,
        k_norm: Floats | None,
        eps: float,
        cos: Floats,
        sin: Floats,
        window: int,
        scale: float,
        out: Floats,
    ) -> None:
        n_kv_heads, max_seq_len, head_dim = k_cache.n_heads, k_cache.max_seq_len, k_cache.head_dim
        native.check("v_cache", v_cache.panels, k_cache.panels.shape, k_cache.panels.dtype)
        self._check_rows(
            qkv=(qkv, (n_heads + 2 * n_kv_heads) * head_dim), out=(out, n_heads * head_dim)
        )
        _check_vectors(q_norm=(q_norm, head_dim), k_norm=(k_norm, head_dim))
        rotary_half = cos.shape[1]
        for name, table in (("cos", cos), ("sin", sin)):
            native.check(name, table, (len(cos), rotary_half), np.float32)
        self._max_seq_len = min(len(cos), max_seq_len, self._max_seq_len or max_seq_len)
        scratch_floats = kernels.attention_scratch_floats(n_heads, head_dim, max_seq_len)
        self._tape.attention(
            qkv=native.address(qkv),
            k_cache=native.address(k_cache.panels),
            v_cache=native.address(v_cache.panels),
            k_scales=native.address(k_cache.scales),
            v_scales=native.address(v_cache.scales),
            kv=getattr(kernels.KvType, _KV_TYPES[k_cache.format]),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            max_seq_len=max_seq_len,
            q_norm=native.address(q_norm),
            k_norm=native.address(k_norm),
            eps=eps,
            cos=native.address(cos),
            sin=native.address(sin),
            rotary_half=rotary_half,
            window=window,
            scale=scale,
            scratch=self._scratch_of(4 * scratch_floats),
            out=native.address(out),
        )
        self._matrices.append(None)
        self._keep_alive += (qkv, k_cache, v_cache, q_norm, k_norm, cos, sin, out)

    def run(self, state: StepState) -> bool:
        """All ops; False when `state.aborted` left work out. Other Python threads run meanwhile.

        Raises RuntimeError while another program of this process runs.
        """
        self._check_state(state)
        is_whole: bool = self._tape.run(state.address)
        return is_whole

    def rows(self, logits: Floats) -> Floats:
        return logits

    def expect_next(self) -> None:
        """Nothing runs ahead."""

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`; each op with the shape of its matrix in its name."""
        self._check_state(state)
        all_ns = self._tape.profile(state.address)
        times = []
        for name, matrix, ns in zip(self._tape.names(), self._matrices, all_ns, strict=True):
            shape = "" if matrix is None else f" {matrix.n_out}x{matrix.n_in} {matrix.format}"
            times.append(OpTime(name + shape, ns, 0 if matrix is None else matrix.panels.nbytes))
        return times

    def _check_state(self, state: StepState) -> None:
        n_rows = state.n_rows
        if not 1 <= n_rows <= self._max_rows:
            raise ValueError(f"a pass has 1 to {self._max_rows} rows, not {n_rows}")
        end = state.pos + n_rows
        if self._max_seq_len is not None and not n_rows <= end <= self._max_seq_len:
            raise ValueError(f"positions up to {end}, of {self._max_seq_len}")

    def _check_rows(self, **arrays: tuple[Floats | None, int]) -> None:
        """(rows, width) each; a pass may have no more rows than the shortest of all arrays."""
        for name, (array, width) in arrays.items():
            if array is not None:
                native.check(name, array, (len(array), width), np.float32)
                self._max_rows = min(self._max_rows, len(array))

    def _scratch_of(self, n_bytes: int) -> int:
        """Memory that one op at a time uses, so they share it."""
        if len(self._scratch) < n_bytes:
            memory = np.empty(n_bytes + _CACHE_LINE, np.uint8)
            begin = -native.address(memory) % _CACHE_LINE
            self._scratch = memory[begin : begin + n_bytes]
            self._keep_alive.append(self._scratch)
        return native.address(self._scratch)


def _check_vectors(**arrays: tuple[Floats | None, int]) -> None:
    for name, (array, n) in arrays.items():
        if array is not None:
            native.check(name, array, (n,), np.float32)
