"""Recurrent layers, in the words of this project: their sizes, and those of their states.

Owns the shape of the data only, as `config.py` does.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple


class StateShape(NamedTuple):
    """Numbers of the state of a layer, and of what it must know of a row to step over it again."""

    n_state: int
    n_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvConfig:
    """A causal convolution over the last `kernel` rows, channel by channel, between two gates:
    c * conv(b * x).
    """

    dim: int
    kernel: int
    bias: bool = False
    """Of the convolution and of both projections."""

    @property
    def in_dim(self) -> int:
        """Rows of the projection: b, c and x."""
        return 3 * self.dim

    @property
    def out_dim(self) -> int:
        return self.dim

    @property
    def state_shape(self) -> StateShape:
        return StateShape((self.kernel - 1) * self.dim, self.dim)

    def n_params(self, dim: int) -> int:
        biases = self.dim + self.in_dim + dim if self.bias else 0
        return dim * (self.in_dim + self.out_dim) + self.dim * self.kernel + biases


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetConfig:
    """A gated delta net: each value head has a matrix (k_dim, v_dim) as its state. Value heads
    share key heads in groups of equal size.
    """

    n_k_heads: int
    n_v_heads: int
    k_dim: int
    v_dim: int
    kernel: int
    """Rows that the convolution of queries, keys and values sees."""
    takes_turns: bool = False
    """Whether the value heads of a key head are `n_k_heads` apart, not next to each other."""
    has_rates: bool = False
    """Whether -exp(a_log) is stored instead of a_log."""

    def __post_init__(self) -> None:
        if self.n_v_heads % self.n_k_heads:
            raise ValueError(
                f"n_v_heads: {self.n_v_heads} is no multiple of the {self.n_k_heads} key heads"
            )

    @property
    def conv_dim(self) -> int:
        """Width of all queries, keys and values."""
        return 2 * self.n_k_heads * self.k_dim + self.out_dim

    @property
    def in_dim(self) -> int:
        """Rows of the projection: q, k, v, then b and a of each value head, then its gates z."""
        return self.conv_dim + 2 * self.n_v_heads + self.out_dim

    @property
    def out_dim(self) -> int:
        return self.n_v_heads * self.v_dim

    @property
    def state_shape(self) -> StateShape:
        matrices = self.n_v_heads * self.k_dim * self.v_dim
        n_row = self.conv_dim + 2 * self.n_v_heads
        return StateShape((self.kernel - 1) * self.conv_dim + matrices, n_row)

    def n_params(self, dim: int) -> int:
        own = self.conv_dim * self.kernel + 2 * self.n_v_heads + self.v_dim
        return dim * (self.in_dim + self.out_dim) + own


_MOST_CHUNK_HEADS = 4  # B and C of a group go through the convolution once for so many heads
NormOrder = Literal["", "gate_first", "norm_first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What multiplies the parts of a row that a Mamba 2 layer reads."""

    z: float = 1.0
    x: float = 1.0
    b: float = 1.0
    c: float = 1.0
    dt: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Config:
    """Mamba 2: each head has a matrix (head_dim, state_dim) as its state. Heads share B and C in
    groups of equal size.
    """

    n_heads: int
    n_groups: int
    head_dim: int
    state_dim: int
    kernel: int
    """Rows that the convolution of x, B and C sees."""
    conv_bias: bool = False
    in_bias: bool = False
    out_bias: bool = False
    norm: NormOrder = "gate_first"
    """Of the output, group by group, and whether the gate comes before or behind it; empty: there
    is the gate alone.
    """
    dt_limits: tuple[float, float] = (0.0, math.inf)
    """Of the time that a step takes."""
    has_rates: bool = False
    """Whether -exp(a_log) is stored instead of a_log."""
    scales: Scales = Scales()

    def __post_init__(self) -> None:
        if self.n_heads % self.n_groups:
            raise ValueError(f"n_groups: {self.n_groups} do not divide the {self.n_heads} heads")

    @property
    def chunk_heads(self) -> int:
        """Heads of a group that one thread computes together, with B and C for themselves."""
        group = self.n_heads // self.n_groups
        return max(n for n in range(1, _MOST_CHUNK_HEADS + 1) if group % n == 0)

    @property
    def bc_dim(self) -> int:
        """Width of B, and of C, of all groups."""
        return self.n_groups * self.state_dim

    @property
    def conv_dim(self) -> int:
        """Width of x, B and C."""
        return self.out_dim + 2 * self.bc_dim

    @property
    def in_dim(self) -> int:
        """Rows of the projection: z, x, B, C, then dt of each head."""
        return self.out_dim + self.conv_dim + self.n_heads

    @property
    def out_dim(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def state_shape(self) -> StateShape:
        n_own = self.n_heads // self.chunk_heads * 2 * self.state_dim
        n_channels = self.out_dim + n_own
        n_state = (self.kernel - 1) * n_channels + self.out_dim * self.state_dim
        return StateShape(n_state, n_channels + self.n_heads)

    def n_params(self, dim: int) -> int:
        own = self.conv_dim * (self.kernel + self.conv_bias) + 3 * self.n_heads
        own += self.out_dim if self.norm else 0
        own += (self.in_dim if self.in_bias else 0) + (dim if self.out_bias else 0)
        return dim * (self.in_dim + self.out_dim) + own


Recurrent = ShortConvConfig | DeltaNetConfig | Mamba2Config
