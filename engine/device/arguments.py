"""The arguments of each op of the decoder as plain data, as csrc/ops.h has them.

Owns the shapes and what the fields mean; `reference.py` says what an op computes. A struct is
generic in the types of one device: its program takes `NormLinear[Floats, PanelMatrix]`. Runs
nothing. Shape letters: V vocabulary, rows tokens processed at once.

Arrays of rows are (rows, n) and may have more rows than a pass: an op works on the first
`state.n_rows` of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ..checkpoint.activation import Activation, Xielu
from ..checkpoint.config import ExpertsConfig
from ..checkpoint.recurrent import DeltaNetConfig, Mamba2Config


class Array(Protocol):
    """Memory of a device: a numpy array or a torch tensor. Only its ops look inside."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> "Array": ...


class Matrix(Protocol):
    """A matrix (n_out, n_in) in an execution format. Only the ops that made it look inside."""

    @property
    def n_out(self) -> int: ...

    @property
    def n_in(self) -> int: ...

    @property
    def format(self) -> str:
        """As `formats.py` names it; several are joined by `+`."""
        ...

    @property
    def n_bytes(self) -> int:
        """In memory."""
        ...


class RowTable(Protocol):
    """A table (V, n_in) that stays in its file."""

    @property
    def n_in(self) -> int: ...

    def read(self, indices: Iterable[int], /) -> npt.NDArray[np.float32]:
        """These rows, (n, n_in). Raises ModelLoadError when the file has changed."""
        ...


class HeadRows(Protocol):
    """Keys or values of one layer, (n_kv_heads, max_seq_len, head_dim), in the ops' own layout.

    `max_seq_len`: the positions that are held; fewer than a sequence has where they go round.
    """

    @property
    def n_kv_heads(self) -> int: ...

    @property
    def max_seq_len(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def format(self) -> str: ...


class Tails(Protocol):
    """Keys and values of branches in one layer, after what they share, in the ops' own layout."""

    @property
    def n_branches(self) -> int: ...


class States(Protocol):
    """The states of one recurrent layer at several positions, and the latest rows."""

    @property
    def n_slots(self) -> int: ...


ArrayT = TypeVar("ArrayT", bound=Array)
MatrixT = TypeVar("MatrixT", bound=Matrix)
HeadRowsT = TypeVar("HeadRowsT", bound=HeadRows)
TailsT = TypeVar("TailsT", bound=Tails)
StatesT = TypeVar("StatesT", bound=States)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(Generic[ArrayT, MatrixT]):
    """out = scale times the rows of the table that the token ids name, plus those of positions."""

    table: MatrixT  # (V, dim)
    scale: float = 1.0
    positions: ArrayT | None = None  # (max_seq_len * dim,): the row of each position
    out: ArrayT  # (rows, dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp(Generic[ArrayT]):
    """out = scale times the rows of a table in a file that the token ids name. A pass may begin
    with it, wherever it was recorded.
    """

    table: RowTable  # (V, n)
    scale: float = 1.0
    out: ArrayT  # (rows, n)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLinear(Generic[ArrayT, MatrixT]):
    """out = the activation of scale times (matrix times norm(residual), plus bias)."""

    residual: ArrayT  # (rows, n_in)
    norm: ArrayT | None  # (n_in,); None: no norm
    norm_bias: ArrayT | None = None  # (n_in,)
    centered: bool = False  # LayerNorm instead of RMSNorm
    eps: float
    matrix: MatrixT  # (n_out, n_in)
    bias: ArrayT | None = None  # (n_out,)
    gated: bool = False  # the matrix has gate and up rows, and out = activation(gate) * up
    activation: Activation | None = None  # None: silu if it is gated, otherwise none
    xielu: Xielu | None = None  # of the activation of this name
    scale: float = 1.0  # only where nothing is gated
    softcap: float = 0.0  # out = softcap * tanh(out / softcap), without an activation; 0: no cap
    out: ArrayT  # (rows, n_out); gated: (rows, n_out / 2)

    def __post_init__(self) -> None:
        if self.gated and (self.scale != 1.0 or self.softcap):
            raise ValueError("scale, softcap: a gated product has none")
        if self.activation is not None and self.softcap:
            raise ValueError("softcap: a product with an activation has none")
        if (self.activation == "xielu") != (self.xielu is not None):
            raise ValueError("xielu: the activation of this name has numbers, and no other")

    @property
    def function(self) -> str:
        """The activation; empty: none."""
        return self.activation or ("silu" if self.gated else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Generic[ArrayT, MatrixT]):
    """out = residual + scale * (matrix times x, plus bias).

    Raises ValueError if `out` is `residual` itself.
    """

    x: ArrayT  # (rows, n_in)
    matrix: MatrixT  # (n_out, n_in)
    bias: ArrayT | None = None  # (n_out,)
    residual: ArrayT | None = None  # (rows, n_out); None adds nothing
    scale: float = 1.0
    out: ArrayT  # (rows, n_out)

    def __post_init__(self) -> None:
        if self.residual is self.out:
            raise ValueError("out: it must be another array than residual")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert(Generic[ArrayT, MatrixT]):
    """Feed-forward parts of one shape, each down(activation(gate) * up), or, without gates,
    down(activation(up)).
    """

    gate_up: Sequence[MatrixT]  # (2 * hidden_dim, dim) of each, or (hidden_dim, dim)
    b_gate_up: ArrayT | None = None  # (n * 2 * hidden_dim,), or (n * hidden_dim,)
    down: Sequence[MatrixT]  # (dim, hidden_dim) of each
    b_down: ArrayT | None = None  # (n * dim,)

    @property
    def has_gates(self) -> bool:
        return self.gate_up[0].n_out == 2 * self.down[0].n_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts(Generic[ArrayT, MatrixT]):
    """out = residual + scale * the weighted sum of what the chosen experts make of norm(x), plus
    that of the shared part. A row's choice depends on its numbers in `router` alone.
    """

    x: ArrayT  # (rows, dim)
    norm: ArrayT | None  # (dim,)
    norm_bias: ArrayT | None = None  # (dim,)
    centered: bool = False
    eps: float
    router: ArrayT  # (rows, config.router_dim), the last for the gate of the shared part
    config: ExpertsConfig
    selection_bias: ArrayT | None = None  # (n_experts,)
    expert_scales: ArrayT | None = None  # (n_experts,): they multiply the weights of experts
    experts: Expert[ArrayT, MatrixT]
    shared: Expert[ArrayT, MatrixT] | None = None  # one, which all rows go through
    activation: Activation
    residual: ArrayT | None  # (rows, dim); None adds nothing
    scale: float = 1.0
    out: ArrayT  # (rows, dim); may be x, but not the residual

    def __post_init__(self) -> None:
        if self.residual is self.out:
            raise ValueError("out: it must be another array than residual")
        n = self.config.n_experts
        for name, matrices in (("gate_up", self.experts.gate_up), ("down", self.experts.down)):
            if len(matrices) != n:
                raise ValueError(f"{name}: {len(matrices)} matrices for {n} experts")
            if len({(each.n_out, each.n_in, each.format) for each in matrices}) != 1:
                raise ValueError(f"{name}: all experts must have one shape and one format")
        if self.shared is not None and self.shared.has_gates != self.experts.has_gates:
            raise ValueError("shared: it must have gates where experts have them")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNorm(Generic[ArrayT]):
    """out = factor * (residual + scale * norm(x)). If the norm is narrower than a row, each part of
    its width is normed by itself.
    """

    x: ArrayT  # (rows, dim)
    norm: ArrayT  # (n,); dim is a multiple of it
    eps: float
    residual: ArrayT | None  # (rows, dim); None adds nothing
    scale: float = 1.0
    factor: ArrayT | None = None  # (1,); None: 1
    out: ArrayT  # (rows, dim); may be x or the residual


@dataclass(frozen=True, slots=True, kw_only=True)
class Times(Generic[ArrayT]):
    """x *= as many columns of other rows, from column `begin` on."""

    x: ArrayT  # (rows, n)
    others: ArrayT  # (rows, begin + n or more)
    begin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads(Generic[ArrayT]):
    """Prepares queries, keys and values in place where attention's own norm and rotation do not
    do: rotation of queries and keys if there are tables, then the norms, then a factor of the
    queries.
    """

    qkv: ArrayT  # (rows, (n_heads + 2 * n_kv_heads) * head_dim), or of the queries alone
    n_heads: int
    n_kv_heads: int
    head_dim: int
    q_norm: ArrayT | None = None  # (n_heads * head_dim,); None: no norm
    k_norm: ArrayT | None = None  # (n_kv_heads * head_dim,)
    v_norm: ArrayT | None = None  # the same
    has_keys: bool = True  # and values
    eps: float
    over_all: bool = False  # one norm of all heads; otherwise one of each
    centered: bool = False  # LayerNorm instead of RMSNorm
    cos: ArrayT | None = None  # float32 (max_seq_len, rotary_dim / 2)
    sin: ArrayT | None = None
    q_scales: ArrayT | None = None  # float32 (max_seq_len,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Generic[ArrayT, HeadRowsT]):
    """RMSNorm per query and key head, RoPE, K and V into the caches, then causal attention.

    With a window, and where the ops allow it, the caches may hold fewer positions than the sequence
    has: `windows.py` says how many, and where they lie.

    Unless it `stores`, there are only queries, and the caches are those of an earlier op.
    """

    qkv: ArrayT  # (rows, (n_heads + 2 * n_kv_heads) * head_dim), or (rows, n_heads * head_dim)
    k_cache: HeadRowsT
    v_cache: HeadRowsT
    n_heads: int
    q_norm: ArrayT | None = None  # (head_dim,); None: no norm
    k_norm: ArrayT | None = None
    eps: float  # for both norms
    cos: ArrayT  # float32 (max_seq_len, rotary_dim / 2)
    sin: ArrayT
    window: int = 0  # keys that a query sees, itself included; 0: all
    scale: float  # multiplies the products of queries and keys
    softcap: float = 0.0  # scores become softcap * tanh(score / softcap); 0: they stay
    sinks: ArrayT | None = None  # (n_heads,): one more score in each softmax, without a value
    # (n_kv_heads, 3, head_dim): what keys have in common, where they are stored in 4bit. It changes
    # only the rounding.
    common_keys: ArrayT | None = None
    stores: bool = True
    out: ArrayT  # (rows, n_heads * head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAttention(Generic[ArrayT, HeadRowsT, TailsT]):
    """Attention for rows that belong to different branches of one sequence.

    Each row is what it would be in a pass over its branch alone, bit for bit. The caches hold what
    the branches share; positions after it are overwritten.
    """

    attention: Attention[ArrayT, HeadRowsT]
    tails: TailsT


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(Generic[ArrayT, StatesT]):
    """out = c * conv(b * x), a causal convolution over the last `kernel` rows of each channel."""

    x: ArrayT  # (rows, 3 * dim): b, c, x
    states: StatesT
    conv: ArrayT  # (dim * kernel,): of each channel, the oldest row first
    bias: ArrayT | None = None  # (dim,)
    kernel: int
    out: ArrayT  # (rows, dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNet(Generic[ArrayT, StatesT]):
    """The gated delta rule, as csrc/recurrent.h has it: q, k and v go through a convolution and
    silu, the states of the heads take a step, and out = RMSNorm of what they give, times silu(z).
    """

    x: ArrayT  # (rows, config.in_dim): q, k, v, b, a, z
    states: StatesT
    config: DeltaNetConfig
    conv: ArrayT  # (config.conv_dim * config.kernel,): of each channel, the oldest row first
    a_log: ArrayT  # (n_v_heads,), or what the config says
    dt_bias: ArrayT  # (n_v_heads,)
    norm: ArrayT  # (v_dim,)
    eps: float
    out: ArrayT  # (rows, config.out_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(Generic[ArrayT, StatesT]):
    """Mamba 2 up to the norm and the gate, as csrc/recurrent.h has it: x, B and C go through a
    convolution and silu, the states of the heads take a step, and out = S C + skip * x.
    """

    x: ArrayT  # (rows, config.in_dim): z, x, B, C, dt
    states: StatesT
    config: Mamba2Config
    conv: ArrayT  # (config.conv_dim * config.kernel,): of each channel, the oldest row first
    conv_bias: ArrayT | None = None  # (config.conv_dim,)
    a_log: ArrayT  # (n_heads,), or what the config says
    dt_bias: ArrayT  # (n_heads,)
    skip: ArrayT  # (n_heads,)
    out: ArrayT  # (rows, config.out_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedNorm(Generic[ArrayT]):
    """x = RMSNorm(x silu(gate)), or RMSNorm(x) silu(gate) unless the gate comes first; each of the
    equal groups of columns is normed by itself. The gate may be scaled.
    """

    x: ArrayT  # (rows, n)
    gate: ArrayT  # (rows, n or more), of which the first n columns count
    gate_scale: float = 1.0
    norm: ArrayT | None = None  # (n,); None: no norm
    n_groups: int = 1
    gate_first: bool = True
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Generic[ArrayT]):
    """x = x * sigmoid(gate)"""

    x: ArrayT  # (rows, n)
    gate: ArrayT  # (rows, n)


Op = (
    Embed[Any, Any]
    | NormLinear[Any, Any]
    | Linear[Any, Any]
    | LookUp[Any]
    | Experts[Any, Any]
    | AddNorm[Any]
    | Times[Any]
    | Heads[Any]
    | Attention[Any, Any]
    | BranchAttention[Any, Any, Any]
    | ShortConv[Any, Any]
    | DeltaNet[Any, Any]
    | Mamba2[Any, Any]
    | GatedNorm[Any]
    | Gate[Any]
)
