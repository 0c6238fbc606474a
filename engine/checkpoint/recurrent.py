"""Recurrent layers, in the words of this project: their sizes, and those of their states.

Owns the shape of the data only, as `config.py` does.
"""

from dataclasses import dataclass
from typing import NamedTuple


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


Recurrent = ShortConvConfig | DeltaNetConfig
