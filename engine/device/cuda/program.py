"""Passes of the decoder on a CUDA device: ops recorded once, then launched any number of times.

Owns the tape of a pass, its ops, whose arrays the tape points to, and what runs ahead. Implements
`ops.Program`; `arguments.py` says what the ops take. Knows no model and no checkpoint.

A pass of up to MAX_ROWS rows is a graph of own kernels, one launch. More rows are a chunk of a
prompt, which `prefill.py` runs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..arguments import AddNorm, Array, Attention, Embed, Experts, Linear, NormLinear, Op
from ..ops import OpTime
from ..recording import PassLimits, op_times
from ..step import StepState
from . import prefill
from .activations import activation_of
from .attention import CudaHeadRows, fields
from .experts import ExpertTables
from .lacking import check_kernels
from .lane import Ahead, Lane
from .prefill import PromptRows, add_norm_fields, attention_scratch
from .rows import CudaRows, HostCopy
from .weights import CudaMatrix

# Lengths of contexts that graphs are made for: this, and its doubles.
_SHORTEST = 1024
_ALIGNMENT = 16


class CudaProgram:
    """Ops in order."""

    def __init__(self, lane: Lane, host: HostCopy, max_rows: int) -> None:
        """`host`: where rows of logits are copied on demand."""
        self._lane = lane
        self._kernels = lane.kernels
        self._host = host
        self._tape = lane.kernels.Tape()
        self._ops: list[Op] = []  # keeps alive what the tape points to
        # Of each op the method that puts it on the tape, and its arguments: attention is told what
        # the ops after it read, so the tape waits until these are known.
        self._calls: list[tuple[Callable[..., None], dict[str, Any]]] = []
        self._limits = PassLimits(max_rows)
        self._tables = ExpertTables(lane, _vector)
        self._last = StepState(self._kernels.MAX_ROWS)  # of the last run
        self._n_runs = 0
        self._pass_number = 0  # of the last run, as the lane counts passes
        self.expects_next = False
        """Whether the next pass will most likely be the token drawn from this one."""

    def append(self, op: Op) -> None:
        check_kernels(op)
        match op:
            case Embed():
                self._embed(op)
            case NormLinear():
                self._norm_linear(op)
            case Linear():
                self._linear(op)
            case Attention():
                self._attention(op)
            case Experts():
                self._experts(op)
            case AddNorm():
                self._add_norm(op)
        self._ops.append(op)

    def _call(self, method: Callable[..., None], **arguments: Any) -> None:
        self._calls.append((method, arguments))

    def _embed(self, op: Embed[Tensor, CudaMatrix]) -> None:
        out = self._rows("out", op.out, op.table.n_in)
        self._call(self._tape.embed, **op.table.place(), out=out, scale=op.scale)

    def _norm_linear(self, op: NormLinear[Tensor, CudaMatrix]) -> None:
        matrix, n_in, n_out = op.matrix, op.matrix.n_in, op.matrix.n_out
        epilogue = activation_of(self._kernels, op.function, gated=op.gated)
        if op.softcap:
            epilogue = self._kernels.Epilogue.SOFTCAP
        self._call(
            self._tape.norm_linear,
            residual=self._rows("residual", op.residual, n_in),
            norm=_vector("norm", op.norm, n_in),
            eps=op.eps,
            **matrix.place(),
            bias=_vector("bias", op.bias, n_out),
            out=self._rows("out", op.out, n_out // 2 if op.gated else n_out),
            epilogue=epilogue,
            softcap=op.softcap,
            scale=op.scale,
        )

    def _linear(self, op: Linear[Tensor, CudaMatrix]) -> None:
        matrix = op.matrix
        self._call(
            self._tape.linear,
            x=self._rows("x", op.x, matrix.n_in),
            **matrix.place(),
            bias=_vector("bias", op.bias, matrix.n_out),
            residual=self._rows("residual", op.residual, matrix.n_out),
            out=self._rows("out", op.out, matrix.n_out),
            scale=op.scale,
        )

    def _attention(self, op: Attention[Tensor, CudaHeadRows]) -> None:
        keys, values = op.k_cache, op.v_cache
        max_seq_len, head_dim = keys.max_seq_len, keys.head_dim
        if (values.rows.shape, values.format) != (keys.rows.shape, keys.format):
            raise ValueError("v_cache: expected the shape and format of k_cache")
        for name, table in (("cos", op.cos), ("sin", op.sin)):
            _check(name, table, (len(op.cos), op.cos.shape[1]))
        self._limits.fit_positions(min(len(op.cos), max_seq_len))
        for name, norm in (("q_norm", op.q_norm), ("k_norm", op.k_norm)):
            _vector(name, norm, head_dim)
        _vector("sinks", op.sinks, op.n_heads)
        scratch = attention_scratch(self._lane, op)
        self._call(
            self._tape.attention,
            qkv=self._rows("qkv", op.qkv, (op.n_heads + 2 * keys.n_kv_heads) * head_dim),
            **fields(self._kernels, op, scratch=scratch),
            out=self._rows("out", op.out, op.n_heads * head_dim),
        )

    def _add_norm(self, op: AddNorm[Tensor]) -> None:
        dim, width = op.x.shape[1], op.norm.shape[0]
        if dim % width:
            raise ValueError(f"norm: {width} columns do not divide {dim}")
        for name, rows in (("x", op.x), ("residual", op.residual), ("out", op.out)):
            self._rows(name, rows, dim)
        _vector("norm", op.norm, width)
        _vector("factor", op.factor, 1)
        self._call(self._tape.add_norm, **add_norm_fields(op))

    def _experts(self, op: Experts[Tensor, CudaMatrix]) -> None:
        dim = op.out.shape[1]
        self._call(
            self._tape.experts,
            x=self._rows("x", op.x, dim),
            router=self._rows("router", op.router, op.config.router_dim),
            **self._tables.fields(op),
            residual=self._rows("residual", op.residual, dim),
            out=self._rows("out", op.out, dim),
        )

    def _record(self) -> None:
        """Puts the ops on the tape that are not on it yet."""
        for index in range(len(self._tape), len(self._ops)):
            method, arguments = self._calls[index]
            if isinstance(self._ops[index], Attention):
                arguments["next"] = list(map(_weights, self._ops[index + 1 : index + 3]))
            method(**arguments)

    def run(self, state: StepState, *, guess_from: Array | None = None) -> bool:
        """Launches all ops; returns False if `state.aborted` left some out.

        If this pass already runs ahead it is not launched again. Nothing is guessed: see
        `expect_next`.
        """
        self._limits.check(state)
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

    def rows(self, logits: Array) -> CudaRows:
        assert isinstance(logits, Tensor)
        return CudaRows(logits, self, self._n_runs, self._host)

    def expect_next(self) -> None:
        self.expects_next = True

    def begin(self, state: StepState) -> None:
        """Nothing: `expect_next` launches the pass before its token is known."""

    def run_ahead(self) -> None:
        """Launches the pass of the token that the device's state names, after the last pass and
        before the host has read which token that is.
        """
        pos = self._last.pos + self._last.n_rows
        if self._limits.has_position(pos):
            self._replay(1, pos + 1)
            self._lane.ahead = Ahead(self, pos, None)

    def tell_ahead(self, token_id: int) -> None:
        """Says that `run_ahead` launched the pass of `token_id`."""
        if self._lane.ahead is not None:
            self._lane.ahead = self._lane.ahead._replace(token_id=token_id)

    def restore(self, n_runs: int) -> None:
        """Makes sure that the buffers hold the results of the last run, number `n_runs`: it runs
        again if another pass may have overwritten them.
        """
        if n_runs != self._n_runs:
            raise RuntimeError("these rows belong to an earlier pass")
        if self._pass_number != self._lane.n_passes:
            self._launch()

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`; each op with the shape of its matrix in its name. Empty for a prefill
        of more than MAX_ROWS rows.
        """
        self._limits.check(state)
        if state.n_rows > self._kernels.MAX_ROWS:
            self.run(state)
            return []
        self._last.set(state.token_ids.tolist(), state.pos)
        self._n_runs += 1
        lane = self._lane
        lane.enter()
        self._record()
        lane.upload(state)
        end = state.pos + state.n_rows
        all_ns = self._tape.profile(lane.state.data_ptr(), state.n_rows, _bound(end), lane.stream)
        self._pass_number = lane.n_passes
        return op_times(self._ops, self._tape.names(), all_ns)

    def warm_up(self) -> None:
        """Runs passes of every number of rows, and builds the graphs of longer contexts for one
        row: each would otherwise hold up a token for some milliseconds.
        """
        most = min(self._limits.max_rows, self._kernels.MAX_ROWS)
        state = StepState(most)
        for n_rows in range(1, most + 1):
            if self._limits.has_position(n_rows - 1):
                state.set([0] * n_rows, 0)
                self.run(state)
        length, lane = _SHORTEST, self._lane
        while self._limits.has_position(length):
            length *= 2
            self._tape.prepare(lane.state.data_ptr(), 1, length, lane.stream)

    def _launch(self) -> None:
        last = self._last
        self._lane.upload(last)
        self._replay(last.n_rows, last.pos + last.n_rows)
        self._pass_number = self._lane.n_passes

    def _replay(self, n_rows: int, end: int) -> None:
        lane = self._lane
        lane.enter()
        self._record()
        self._tape.replay(lane.state.data_ptr(), n_rows, _bound(end), lane.stream)

    @torch.inference_mode()
    def _run_prefill(self, state: StepState) -> bool:
        lane = self._lane
        lane.enter()
        # So that an abort waits for one chunk at most.
        lane.wait()
        token_ids = torch.from_numpy(state.token_ids).to(lane.device)
        chunk = PromptRows(lane, token_ids, state.pos)
        for op in self._ops:
            if state.aborted:
                return False
            prefill.run(op, chunk)
        return True

    def _rows(self, name: str, array: Tensor | None, width: int) -> int:
        """The address of an array (rows, width), 0 for None. Raises ValueError for another one."""
        if array is None:
            return 0
        _check(name, array, (len(array), width))
        self._limits.fit_rows(len(array))
        return array.data_ptr()


def _weights(op: Op) -> tuple[int, int]:
    """Address and number of bytes of the weights that an op reads."""
    if not isinstance(op, NormLinear | Linear):
        return 0, 0
    return op.matrix.weights.data_ptr(), op.matrix.n_bytes


def _bound(end: int) -> int:
    """The length that a graph for positions before `end` is made for."""
    return max(_SHORTEST, 1 << (end - 1).bit_length())


def _vector(name: str, array: Tensor | None, n: int) -> int:
    """The address of an array (n,), 0 for None. Raises ValueError for another one."""
    if array is None:
        return 0
    _check(name, array, (n,))
    return array.data_ptr()


def _check(name: str, array: Tensor, shape: tuple[int, ...]) -> None:
    """A kernel trusts its pointers: raises ValueError, with the name, for memory that is wrong."""
    if array.dtype != torch.float32:
        raise ValueError(f"{name}: expected float32, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(array.shape)}")
    if not array.is_contiguous() or array.data_ptr() % _ALIGNMENT:
        raise ValueError(f"{name}: expected contiguous memory, aligned to {_ALIGNMENT} bytes")
