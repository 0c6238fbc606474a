"""Rotary position embedding as two tables.

Owns the frequency rules, one for each kind of scaling. Knows nothing of heads or the layout of
queries: the attention op applies the tables.
"""

import math

import numpy as np
import numpy.typing as npt

from ..checkpoint.config import QueryScaling
from ..checkpoint.ropes import (
    DividedScaling,
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongScaling,
    ProportionalScaling,
    RopeConfig,
    YarnScaling,
)

Table = npt.NDArray[np.float32]
Frequencies = npt.NDArray[np.float64]


def rope_tables(rope: RopeConfig, max_seq_len: int) -> tuple[Table, Table]:
    """cos and sin of pos * inv_freq, each float32 (max_seq_len, rotary_dim / 2).

    Both are multiplied by the attention factor of the scaling, so that products of queries and keys
    are multiplied by its square. The angles are computed in float64: float32 loses three digits at
    position 10,000.
    """
    positions = np.arange(max_seq_len, dtype=np.float64)
    frequencies, factor = _scaled(rope, max_seq_len)
    angles = np.outer(positions, frequencies)  # (max_seq_len, rotary_dim / 2)
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)
    return cos.astype(np.float32), sin.astype(np.float32)


def query_scales(scaling: QueryScaling, max_seq_len: int) -> Table:
    """The factor of the queries at each position, float32 (max_seq_len,)."""
    turns = np.arange(max_seq_len, dtype=np.float64) // scaling.original_max_seq_len
    return (1.0 + scaling.beta * np.log1p(turns)).astype(np.float32)


def _scaled(rope: RopeConfig, max_seq_len: int) -> tuple[Frequencies, float]:
    """The frequencies for contexts of `max_seq_len`, and the attention factor."""
    scaling = rope.scaling
    plain = _frequencies(rope.theta, rope.rotary_dim)
    match scaling:
        case None:
            return plain, 1.0
        case ProportionalScaling():
            is_turning = np.arange(len(plain)) < scaling.n_turning
            return np.where(is_turning, plain / scaling.factor, 0.0), 1.0
        case LinearScaling():
            return plain / scaling.factor, 1.0
        case Llama3Scaling():
            return _llama3(plain, scaling), 1.0
        case DynamicScaling():
            return _dynamic(rope, scaling, rope.stretched_to(max_seq_len)), 1.0
        case YarnScaling():
            return _yarn(rope, plain, scaling), scaling.attention_factor
        case LongScaling():
            return _long(rope, plain, scaling, max_seq_len)
        case DividedScaling():
            return plain / np.array(scaling.divisors), 1.0


def _frequencies(theta: float, rotary_dim: int) -> Frequencies:
    inv_freq: Frequencies = theta ** -(np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    return inv_freq


def _dynamic(rope: RopeConfig, scaling: DynamicScaling, length: int) -> Frequencies:
    dim, original = rope.rotary_dim, scaling.original_max_seq_len
    if dim == 2:  # its one frequency is 1 with every theta
        return _frequencies(rope.theta, dim)
    stretch = scaling.factor * max(length, original) / original - (scaling.factor - 1)
    return _frequencies(rope.theta * stretch ** (dim / (dim - 2)), dim)


def _long(
    rope: RopeConfig, plain: Frequencies, scaling: LongScaling, max_seq_len: int
) -> tuple[Frequencies, float]:
    if rope.stretched_to(max_seq_len):
        return plain / np.array(scaling.long_factors), scaling.attention_factor
    own = scaling.short_attention_factor
    return plain / np.array(scaling.short_factors), scaling.attention_factor if own is None else own


def _yarn(rope: RopeConfig, plain: Frequencies, scaling: YarnScaling) -> Frequencies:
    first = _yarn_border(rope, scaling, scaling.beta_fast)
    last = _yarn_border(rope, scaling, scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.rotary_dim - 1)
    if first == last:
        last += 0.001
    divided = np.clip((np.arange(len(plain)) - first) / (last - first), 0.0, 1.0)
    mixed: Frequencies = plain * (divided / scaling.factor + (1.0 - divided))
    return mixed


def _yarn_border(rope: RopeConfig, scaling: YarnScaling, turns: float) -> float:
    """The index of the frequency that makes `turns` turns within the original context."""
    longest = scaling.original_max_seq_len / (turns * 2 * math.pi)
    return rope.rotary_dim * math.log(longest) / (2 * math.log(rope.theta))


def _llama3(inv_freq: Frequencies, scaling: Llama3Scaling) -> Frequencies:
    # The number of turns within the original context decides: with many (>= high) a frequency
    # stays, with few (<= low) it is divided by the factor, in between it is a mix of the two.
    turns = scaling.original_max_seq_len * inv_freq / (2 * math.pi)
    spread = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / spread, 0.0, 1.0)
    mixed: Frequencies = inv_freq * ((1.0 - keep) / scaling.factor + keep)
    return mixed
