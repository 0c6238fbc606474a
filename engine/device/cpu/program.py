"""Passes of the decoder on the CPU: ops recorded once in native code, then run any number of times.

Owns the tape of a pass, the memory that its ops share among threads, and the ops themselves, whose
arrays the tape points to. Implements `ops.Program`; `arguments.py` says what the ops take. Knows no
model and no checkpoint.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...native import cpu as native
from ...native.cpu import kernels
from ..arguments import (
    AddNorm,
    Array,
    Attention,
    BranchAttention,
    DeltaNet,
    Embed,
    Experts,
    Gate,
    GatedNorm,
    Heads,
    Linear,
    LookUp,
    Mamba2,
    NormLinear,
    Op,
    ShortConv,
    Times,
)
from ..ops import OpTime
from ..recording import PassLimits, op_times
from ..step import StepState
from ..windows import goes_round
from .branches import PanelTails
from .experts import Banks
from .experts import epilogue as experts_epilogue
from .kv import PanelHeadRows
from .look_up import LookUps
from .matrix import CpuMatrix, PanelMatrix
from .memory import Floats, Scratch
from .recurrent import RecurrentOps

_KV_TYPES = {"float32": "F32", "bfloat16": "BF16", "8bit": "INT8", "4bit": "INT4"}
# By whether it is gated, and the activation.
_EPILOGUES = {
    (False, ""): "NONE",
    (True, "silu"): "SILU_GATE",
    (True, "gelu"): "GELU_GATE",
    (True, "gelu_tanh"): "GELU_TANH_GATE",
    (False, "gelu"): "GELU",
    (False, "gelu_tanh"): "GELU_TANH",
    (False, "relu2"): "RELU2",
    (False, "xielu"): "XIELU",
}


class CpuProgram:
    """Ops in order."""

    def __init__(self, max_rows: int, scratch: Scratch | None = None) -> None:
        """`scratch`: what other programs share. None means memory of its own."""
        self._tape = kernels.Tape()
        self._ops: list[Op] = []  # those on the tape; keeps alive what it points to
        self._look_ups = LookUps()
        self._can_begin = True  # a pass, before it is run
        self._banks = Banks(_vector)
        self._scratch = scratch or Scratch()
        self._limits = PassLimits(max_rows)
        # Not a method of this object: a circle of references would keep weights that were dropped.
        self._recurrent = RecurrentOps(self._tape, partial(_rows, self._limits), _vector)

    def append(self, op: Op) -> None:
        match op:
            case Embed():
                self._embed(op)
            case LookUp():
                self._rows("out", op.out, op.table.n_in)
                self._look_ups.append(op)
                self._can_begin = False  # others may be reading what the next pass looks up
                return
            case NormLinear():
                self._norm_linear(op)
            case Linear():
                self._linear(op)
            case Experts():
                self._experts(op)
            case AddNorm():
                self._add_norm(op)
            case Times():
                self._times(op)
            case Heads():
                self._heads(op)
            case Attention():
                self._tape.attention(self._attention(op))
            case BranchAttention():
                self._branch_attention(op)
            case ShortConv():
                self._recurrent.short_conv(op)
            case DeltaNet():
                self._recurrent.delta_net(op)
            case Mamba2():
                self._recurrent.mamba2(op)
            case GatedNorm():
                self._recurrent.gated_norm(op)
            case Gate():
                self._recurrent.gate(op)
        self._ops.append(op)

    def _embed(self, op: Embed[Floats, PanelMatrix]) -> None:
        dim, n_added = op.table.n_in, 0 if op.positions is None else len(op.positions)
        if op.positions is not None:
            self._limits.fit_positions(n_added // dim)
        self._tape.embed(
            table=op.table.place(),
            scale=op.scale,
            positions=_vector("positions", op.positions, n_added),
            out=self._rows("out", op.out, dim),
        )

    def _norm_linear(self, op: NormLinear[Floats, CpuMatrix]) -> None:
        n_in, n_out = op.matrix.n_in, op.matrix.n_out
        sections = _sections(op.matrix)
        self._tape.norm_linear(
            residual=self._rows("residual", op.residual, n_in),
            norm=_vector("norm", op.norm, n_in),
            norm_bias=_vector("norm_bias", op.norm_bias, n_in),
            is_centered=op.centered,
            eps=op.eps,
            sections=sections,
            bias=_vector("bias", op.bias, n_out),
            out=self._rows("out", op.out, n_out // 2 if op.gated else n_out),
            epilogue=_epilogue(op),
            scale=op.scale,
            softcap=op.softcap,
            xielu=_xielu(op),
            scratch=self._linear_scratch(sections),
        )

    def _linear(self, op: Linear[Floats, CpuMatrix]) -> None:
        matrix, sections = op.matrix, _sections(op.matrix)
        self._tape.linear(
            x=self._rows("x", op.x, matrix.n_in),
            sections=sections,
            bias=_vector("bias", op.bias, matrix.n_out),
            residual=self._rows("residual", op.residual, matrix.n_out),
            scale=op.scale,
            out=self._rows("out", op.out, matrix.n_out),
            scratch=self._linear_scratch(sections),
        )

    def _add_norm(self, op: AddNorm[Floats]) -> None:
        (dim,), width = op.norm.shape, op.out.shape[1]
        if width % dim:
            raise ValueError(f"norm: {dim} numbers for rows of {width}")
        self._tape.add_norm(
            x=self._rows("x", op.x, width),
            norm=_norm("norm", op.norm, dim, op.eps),
            residual=self._rows("residual", op.residual, width),
            scale=op.scale,
            factor=_vector("factor", op.factor, 1),
            out=self._rows("out", op.out, width),
            dim=dim,
            n_parts=width // dim,
        )

    def _times(self, op: Times[Floats]) -> None:
        dim, pitch = op.x.shape[1], op.others.shape[1]
        if not 0 <= op.begin <= pitch - dim:
            raise ValueError(f"begin: {op.begin}; there are {dim} of {pitch} columns")
        others = self._rows("others", op.others, pitch) + op.begin * op.others.itemsize
        self._tape.times(x=self._rows("x", op.x, dim), others=others, dim=dim, pitch=pitch)

    def _experts(self, op: Experts[Floats, CpuMatrix]) -> None:
        dim, width = op.out.shape[1], op.config.router_dim
        x, router = self._rows("x", op.x, dim), self._rows("router", op.router, width)
        residual, out = self._rows("residual", op.residual, dim), self._rows("out", op.out, dim)
        args = kernels.Experts(
            x=x,
            norm=kernels.Norm(
                weight=_vector("norm", op.norm, dim),
                bias=_vector("norm_bias", op.norm_bias, dim),
                eps=op.eps,
                is_centered=op.centered,
            ),
            router=router,
            router_width=width,
            routing=self._banks.routing(op.config, op.selection_bias, op.expert_scales),
            routed=self._banks.bank(op.experts, dim),
            shared=self._banks.bank(op.shared, dim),
            has_shared_gate=op.config.shared_gate,
            epilogue=experts_epilogue(op),
            residual=residual,
            scale=op.scale,
            out=out,
            dim=dim,
            max_rows=self._limits.max_rows,
        )
        kernels.append_experts(self._tape, args, scratch=self._scratch_of(args.scratch_bytes()))

    def _heads(self, op: Heads[Floats]) -> None:
        n_heads, n_kv_heads, head_dim = op.n_heads, op.n_kv_heads, op.head_dim
        half = 0 if op.cos is None else op.cos.shape[1]
        for table in (op.cos, op.q_scales):
            if table is not None:
                self._limits.fit_positions(len(table))
        n_scales = 0 if op.q_scales is None else len(op.q_scales)
        n_stored = 2 * n_kv_heads if op.has_keys else 0
        centered = op.centered
        self._tape.heads(
            qkv=self._rows("qkv", op.qkv, (n_heads + n_stored) * head_dim),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            q_norm=_norm("q_norm", op.q_norm, n_heads * head_dim, op.eps, centered=centered),
            k_norm=_norm("k_norm", op.k_norm, n_kv_heads * head_dim, op.eps, centered=centered),
            v_norm=_norm("v_norm", op.v_norm, n_kv_heads * head_dim, op.eps),
            has_keys=op.has_keys,
            over_all=op.over_all,
            cos=_table("cos", op.cos, half),
            sin=_table("sin", op.sin, half),
            rotary_half=half,
            q_scales=_vector("q_scales", op.q_scales, n_scales),
        )

    def _attention(self, op: Attention[Floats, PanelHeadRows]) -> kernels.Attention:
        keys, values = op.k_cache, op.v_cache
        n_kv_heads, max_seq_len, head_dim = keys.n_kv_heads, keys.max_seq_len, keys.head_dim
        if values.shape != keys.shape:
            raise ValueError(f"v_cache: {values.shape}, not {keys.shape} as the keys")
        rotary_half = op.cos.shape[1]
        for name, table in (("cos", op.cos), ("sin", op.sin)):
            native.check(name, table, (len(op.cos), rotary_half), np.float32)
        is_round = goes_round(max_seq_len, op.window, self._limits.max_rows)
        self._limits.fit_positions(len(op.cos) if is_round else min(len(op.cos), max_seq_len))
        n_stored = 2 * n_kv_heads if op.stores else 0
        scratch_floats = kernels.attention_scratch_floats(op.n_heads, head_dim, max_seq_len)
        return kernels.Attention(
            qkv=self._rows("qkv", op.qkv, (op.n_heads + n_stored) * head_dim),
            k_cache=native.address(keys.panels),
            v_cache=native.address(values.panels),
            k_scales=native.address(keys.scales),
            v_scales=native.address(values.scales),
            k_type=getattr(kernels.KvType, _KV_TYPES[keys.format]),
            v_type=getattr(kernels.KvType, _KV_TYPES[values.format]),
            n_heads=op.n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            max_seq_len=max_seq_len,
            q_norm=_vector("q_norm", op.q_norm, head_dim),
            k_norm=_vector("k_norm", op.k_norm, head_dim),
            eps=op.eps,
            cos=native.address(op.cos),
            sin=native.address(op.sin),
            rotary_half=rotary_half,
            window=op.window,
            scale=op.scale,
            softcap=op.softcap,
            sinks=_vector("sinks", op.sinks, op.n_heads),
            common_keys=_common_keys(op),
            stores=op.stores,
            scratch=self._scratch_of(4 * scratch_floats),
            out=self._rows("out", op.out, op.n_heads * head_dim),
        )

    def _branch_attention(self, op: BranchAttention[Floats, PanelHeadRows, PanelTails]) -> None:
        tails = op.tails
        keys, values = tails.keys, tails.values
        for name, rows, cache in (
            ("k_tails", keys, op.attention.k_cache),
            ("v_tails", values, op.attention.v_cache),
        ):
            panels, n_heads = cache.panels, tails.n_branches * cache.n_kv_heads
            shape = n_heads, keys.max_seq_len, panels.shape[2]
            native.check(name, rows.panels, shape, panels.dtype)
        self._limits.fit_rows(tails.n_branches)
        fork = native.address(tails.words)
        self._tape.branch_attention(
            self._attention(op.attention),
            fork=fork,
            rows=fork + tails.words.itemsize,
            k_tails=native.address(keys.panels),
            v_tails=native.address(values.panels),
            k_tail_scales=native.address(keys.scales),
            v_tail_scales=native.address(values.scales),
            tail_len=keys.max_seq_len,
        )

    def run(self, state: StepState, *, guess_from: Array | None = None) -> bool:
        """All ops; False when `state.aborted` left work out. Other Python threads run meanwhile.

        Raises RuntimeError while another program of this process runs.
        """
        self._limits.check(state)
        self._look_ups.run(state)
        if guess_from is None or not (self._can_begin and self._limits.has_position(state.pos + 1)):
            is_whole: bool = self._tape.run(state.address)
            return is_whole
        assert isinstance(guess_from, np.ndarray)
        address, n = native.address(guess_from), guess_from.shape[1]
        is_whole = self._tape.run_and_guess(state.address, address, n)
        return is_whole

    def rows(self, logits: Array) -> Floats:
        assert isinstance(logits, np.ndarray)
        return logits

    def expect_next(self) -> None:
        """Nothing runs before its token is known."""

    def begin(self, state: StepState) -> None:
        """The other threads begin the pass, and `run` joins them. They drop it if anything else is
        run.
        """
        if self._can_begin and self._limits.has_position(state.pos):
            self._tape.begin(state.address)

    def __del__(self) -> None:
        # Before any of the arrays that the tape points to is freed, also by the garbage collector.
        self._tape.drop_begun()

    def warm_up(self) -> None:
        """Nothing is left to do after the recording."""

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`; each op with the shape of its matrix in its name."""
        self._limits.check(state)
        looked_up = self._look_ups.profile(state)
        ns = self._tape.profile(state.address)
        return looked_up + op_times(self._ops, self._tape.names(), ns)

    def _rows(self, name: str, array: Floats | None, width: int) -> int:
        return _rows(self._limits, name, array, width)

    def _linear_scratch(self, sections: Sequence[kernels.Matrix]) -> int:
        return self._scratch_of(kernels.linear_scratch_bytes(sections, self._limits.max_rows))

    def _scratch_of(self, n_bytes: int) -> int:
        return native.address(self._scratch.of(n_bytes))


def _rows(limits: PassLimits, name: str, array: Floats | None, width: int) -> int:
    """The address of an array (rows, width), 0 for None. Raises ValueError for another one."""
    if array is None:
        return 0
    native.check(name, array, (len(array), width), np.float32)
    limits.fit_rows(len(array))
    return native.address(array)


def _sections(matrix: CpuMatrix) -> list[kernels.Matrix]:
    return [section.place() for section in matrix.sections]


def _epilogue(op: NormLinear[Floats, CpuMatrix]) -> kernels.Epilogue:
    if op.softcap:
        return kernels.Epilogue.SOFTCAP
    name = _EPILOGUES.get((op.gated, op.function))
    if name is None:
        raise ValueError(f"activation: no kernel for {op.function}, gated: {op.gated}")
    epilogue: kernels.Epilogue = getattr(kernels.Epilogue, name)
    return epilogue


def _xielu(op: NormLinear[Floats, CpuMatrix]) -> kernels.Xielu:
    """All 0 for other activations, which do not read it."""
    found = op.xielu
    if found is None:
        return kernels.Xielu(positive=0.0, negative=0.0, beta=0.0, eps=0.0)
    return kernels.Xielu(
        positive=found.positive, negative=found.negative, beta=found.beta, eps=found.eps
    )


def _norm(
    name: str, weight: Floats | None, n: int, eps: float, *, centered: bool = False
) -> kernels.Norm:
    address = _vector(name, weight, n)
    return kernels.Norm(weight=address, bias=0, eps=eps, is_centered=centered)


def _table(name: str, array: Floats | None, width: int) -> int:
    """The address of an array (positions, width), 0 for None."""
    if array is None:
        return 0
    native.check(name, array, (len(array), width), np.float32)
    return native.address(array)


def _common_keys(op: Attention[Floats, PanelHeadRows]) -> int:
    """The address of what keys have in common, 0 for nothing. Raises ValueError for another array,
    and for keys that are not stored in 4bit.
    """
    if op.common_keys is None:
        return 0
    keys = op.k_cache
    if keys.format != "4bit":
        raise ValueError(f"common_keys: keys in {keys.format} are stored whole")
    native.check("common_keys", op.common_keys, (keys.n_kv_heads, 3, keys.head_dim), np.float32)
    return native.address(op.common_keys)


def _vector(name: str, array: Floats | None, n: int) -> int:
    """The address of an array (n,), 0 for None. Raises ValueError for another one."""
    if array is None:
        return 0
    native.check(name, array, (n,), np.float32)
    return native.address(array)
