"""Passes of the decoder on a CUDA device: ops recorded once, and launched as often as wanted.

Owns the tape of a pass, its prefill in torch, and what runs ahead. Implements `ops.Program`, which
says what the ops do. Knows no model and no checkpoint.

A pass of up to MAX_ROWS rows is a graph of own kernels, one launch. More rows are a chunk of a
prompt, whose ops are those of `device/cuda/prefill.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..ops import OpTime
from ..step import StepState
from . import prefill
from .attention import CudaHeadRows, place
from .lane import Ahead, Lane
from .prefill import PromptRows
from .rows import CudaRows, HostCopy
from .weights import CudaMatrix

# Lengths of contexts that graphs are made for: this, and its doubles.
_SHORTEST = 1024
_ALIGNMENT = 16


class CudaProgram:
    """Ops in order. Arrays of rows are (rows, n) and may have more rows than a pass."""

    def __init__(self, lane: Lane, host: HostCopy, max_rows: int) -> None:
        """`host`: where rows of logits go for those who ask."""
        self._lane = lane
        self._kernels = lane.kernels
        self._host = host
        self._tape = lane.kernels.Tape()
        self._prefill: list[Callable[[PromptRows], None]] = []
        self._keep_alive: list[object] = []
        self._matrices: list[CudaMatrix | None] = []  # that each op multiplies with
        self._max_rows = max_rows
        self._max_seq_len: int | None = None
        self._last = StepState(self._kernels.MAX_ROWS)  # of the last run
        self._n_runs = 0
        self._pass_number = 0  # of the last run, as the lane counts passes
        self.expects_next = False
        """Whether the next pass will be that of the token drawn from this one."""

    def embed(self, table: CudaMatrix, *, out: Tensor) -> None:
        self._check_rows(out=(out, table.n_in))
        self._tape.embed(**table.place(), out=out.data_ptr())
        self._prefill.append(lambda chunk: prefill.embed(chunk, table, out=out))
        self._matrices.append(None)
        self._keep_alive += (table, out)

    def norm_linear(
        self,
        residual: Tensor,
        matrix: CudaMatrix,
        *,
        norm: Tensor,
        eps: float,
        out: Tensor,
        branch: Tensor | None = None,
        residual_out: Tensor | None = None,
        bias: Tensor | None = None,
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
        epilogue = self._kernels.Epilogue
        self._tape.norm_linear(
            residual_in=residual.data_ptr(),
            branch=_address(branch),
            residual_out=kept.data_ptr(),
            norm=norm.data_ptr(),
            eps=eps,
            **matrix.place(),
            bias=_address(bias),
            out=out.data_ptr(),
            epilogue=epilogue.SILU_GATE if gated else epilogue.NONE,
        )
        self._prefill.append(
            lambda chunk: prefill.norm_linear(
                chunk,
                residual,
                matrix,
                norm=norm,
                eps=eps,
                out=out,
                branch=branch,
                residual_out=kept,
                bias=bias,
                gated=gated,
            )
        )
        self._matrices.append(matrix)
        self._keep_alive += (residual, matrix, norm, out, branch, kept, bias)

    def linear(self, x: Tensor, matrix: CudaMatrix, *, bias: Tensor | None, out: Tensor) -> None:
        self._check_rows(x=(x, matrix.n_in), out=(out, matrix.n_out))
        _check_vectors(bias=(bias, matrix.n_out))
        self._tape.linear(x=x.data_ptr(), **matrix.place(), bias=_address(bias), out=out.data_ptr())
        self._prefill.append(lambda chunk: prefill.linear(chunk, x, matrix, bias=bias, out=out))
        self._matrices.append(matrix)
        self._keep_alive += (x, matrix, bias, out)

    def attention(
        self,
        qkv: Tensor,
        k_cache: CudaHeadRows,
        v_cache: CudaHeadRows,
        *,
        n_heads: int,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        eps: float,
        cos: Tensor,
        sin: Tensor,
        window: int,
        scale: float,
        out: Tensor,
    ) -> None:
        n_kv_heads, max_seq_len, head_dim = len(k_cache.rows), k_cache.max_seq_len, k_cache.head_dim
        if (v_cache.rows.shape, v_cache.format) != (k_cache.rows.shape, k_cache.format):
            raise ValueError("v_cache: expected what k_cache is")
        self._check_rows(
            qkv=(qkv, (n_heads + 2 * n_kv_heads) * head_dim), out=(out, n_heads * head_dim)
        )
        _check_vectors(q_norm=(q_norm, head_dim), k_norm=(k_norm, head_dim))
        for name, table in (("cos", cos), ("sin", sin)):
            _check(name, table, (len(cos), cos.shape[1]))
        self._max_seq_len = min(len(cos), max_seq_len, self._max_seq_len or max_seq_len)
        n_scratch = self._kernels.attention_scratch_bytes(n_heads, head_dim, max_seq_len)
        self._tape.attention(
            qkv=qkv.data_ptr(),
            **place(self._kernels, k_cache, v_cache),
            n_heads=n_heads,
            q_norm=_address(q_norm),
            k_norm=_address(k_norm),
            eps=eps,
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            rotary_half=cos.shape[1],
            window=window,
            scale=scale,
            scratch=self._lane.scratch(n_scratch).data_ptr(),
            out=out.data_ptr(),
        )
        self._prefill.append(
            lambda chunk: prefill.attention(
                chunk,
                qkv,
                k_cache,
                v_cache,
                n_heads=n_heads,
                q_norm=q_norm,
                k_norm=k_norm,
                eps=eps,
                cos=cos,
                sin=sin,
                window=window,
                scale=scale,
                out=out,
            )
        )
        self._matrices.append(None)
        self._keep_alive += (qkv, k_cache, v_cache, q_norm, k_norm, cos, sin, out)

    def run(self, state: StepState) -> bool:
        """All ops are under way; False when `state.aborted` left some out.

        What already runs ahead, and is this pass, is not launched again.
        """
        self._check_state(state)
        if state.aborted:
            return False
        self.expects_next = False
        if state.n_rows > self._kernels.MAX_ROWS:
            return self._run_prefill(state)
        token_ids = state.token_ids.tolist()
        self._last.set(token_ids, state.pos)
        self._n_runs += 1
        if self._lane.ahead == Ahead(self, state.pos, *token_ids[:1]) and len(token_ids) == 1:
            self._lane.ahead = None
            self._pass_number = self._lane.n_passes
        else:
            self._launch()
        return True

    def rows(self, logits: Tensor) -> CudaRows:
        return CudaRows(logits, self, self._n_runs, self._host)

    def expect_next(self) -> None:
        self.expects_next = True

    def run_ahead(self) -> None:
        """Launches the pass of the token that the device's state names, behind those of the last
        one, before anybody has read which token that is.
        """
        pos = self._last.pos + self._last.n_rows
        if self._max_seq_len is None or pos < self._max_seq_len:
            self._replay(1, pos + 1)
            self._lane.ahead = Ahead(self, pos, None)

    def tell_ahead(self, token_id: int) -> None:
        """What `run_ahead` has launched is the pass of `token_id`."""
        if self._lane.ahead is not None:
            self._lane.ahead = self._lane.ahead._replace(token_id=token_id)

    def restore(self, n_runs: int) -> None:
        """The results of the last run, which was the `n_runs`th, are in their buffers: it runs
        again where something else may have overwritten them.
        """
        if n_runs != self._n_runs:
            raise RuntimeError("these rows are of an earlier pass")
        if self._pass_number != self._lane.n_passes:
            self._launch()

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`; each op with the shape of its matrix in its name. Empty for a prefill
        of more than MAX_ROWS rows.
        """
        self._check_state(state)
        if state.n_rows > self._kernels.MAX_ROWS:
            self.run(state)
            return []
        self._last.set(state.token_ids.tolist(), state.pos)
        self._n_runs += 1
        lane = self._lane
        lane.enter()
        lane.upload(state)
        end = state.pos + state.n_rows
        all_ns = self._tape.profile(lane.state.data_ptr(), state.n_rows, _bound(end), lane.stream)
        self._pass_number = lane.n_passes
        times = []
        for name, matrix, ns in zip(self._tape.names(), self._matrices, all_ns, strict=True):
            shape = "" if matrix is None else f" {matrix.n_out}x{matrix.n_in} {matrix.format}"
            times.append(OpTime(name + shape, ns, 0 if matrix is None else matrix.weights.nbytes))
        return times

    def _launch(self) -> None:
        last = self._last
        self._lane.upload(last)
        self._replay(last.n_rows, last.pos + last.n_rows)
        self._pass_number = self._lane.n_passes

    def _replay(self, n_rows: int, end: int) -> None:
        lane = self._lane
        lane.enter()
        self._tape.replay(lane.state.data_ptr(), n_rows, _bound(end), lane.stream)

    @torch.inference_mode()
    def _run_prefill(self, state: StepState) -> bool:
        lane = self._lane
        lane.enter()
        # So an abort waits for one chunk at most.
        lane.wait()
        token_ids = torch.from_numpy(state.token_ids).to(lane.device)
        chunk = PromptRows(lane, token_ids, state.pos)
        for op in self._prefill:
            if state.aborted:
                return False
            op(chunk)
        return True

    def _check_state(self, state: StepState) -> None:
        n_rows = state.n_rows
        if not 1 <= n_rows <= self._max_rows:
            raise ValueError(f"a pass has 1 to {self._max_rows} rows, not {n_rows}")
        end = state.pos + n_rows
        if self._max_seq_len is not None and not n_rows <= end <= self._max_seq_len:
            raise ValueError(f"positions up to {end}, of {self._max_seq_len}")

    def _check_rows(self, **arrays: tuple[Tensor | None, int]) -> None:
        """(rows, width) each; a pass may have no more rows than the shortest of all arrays."""
        for name, (array, width) in arrays.items():
            if array is not None:
                _check(name, array, (len(array), width))
                self._max_rows = min(self._max_rows, len(array))


def _bound(end: int) -> int:
    """The length that a graph for positions before `end` is made for."""
    return max(_SHORTEST, 1 << (end - 1).bit_length())


def _address(array: Tensor | None) -> int:
    return 0 if array is None else array.data_ptr()


def _check_vectors(**arrays: tuple[Tensor | None, int]) -> None:
    for name, (array, n) in arrays.items():
        if array is not None:
            _check(name, array, (n,))


def _check(name: str, array: Tensor, shape: tuple[int, ...]) -> None:
    """A kernel trusts its pointers: raises ValueError, with the name, for memory that is wrong."""
    if array.dtype != torch.float32:
        raise ValueError(f"{name}: expected float32, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(array.shape)}")
    if not array.is_contiguous() or array.data_ptr() % _ALIGNMENT:
        raise ValueError(f"{name}: expected contiguous memory, aligned to {_ALIGNMENT} bytes")
