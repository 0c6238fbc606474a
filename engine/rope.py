"""Rotary position embedding as two tables.

Owns the frequency rules (plain, linear, llama3). Knows nothing of heads or the layout of queries:
the attention op applies the tables.
"""

import math

import numpy as np
import numpy.typing as npt

from .config import Llama3Scaling, RopeConfig

Table = npt.NDArray[np.float32]


def rope_tables(rope: RopeConfig, max_seq_len: int) -> tuple[Table, Table]:
    """cos and sin of pos * inv_freq, each float32 (max_seq_len, rotary_dim / 2).

    The angles are computed in float64: float32 loses three digits at position 10,000.
    """
    positions = np.arange(max_seq_len, dtype=np.float64)
    angles = np.outer(positions, _inverse_frequencies(rope))  # (max_seq_len, rotary_dim / 2)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _inverse_frequencies(rope: RopeConfig) -> npt.NDArray[np.float64]:
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float64) / rope.rotary_dim
    inv_freq: npt.NDArray[np.float64] = rope.theta**-exponents
    if rope.scaling is None:
        return inv_freq
    if isinstance(rope.scaling, Llama3Scaling):
        return _llama3(inv_freq, rope.scaling)
    return inv_freq / rope.scaling.factor


def _llama3(inv_freq: npt.NDArray[np.float64], scaling: Llama3Scaling) -> npt.NDArray[np.float64]:
    # How often a frequency turns within the original context decides what becomes of it: often
    # (>= high) is kept, seldom (<= low) is slowed by the factor, between is a mix of the two.
    turns = scaling.original_max_seq_len * inv_freq / (2 * math.pi)
    spread = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / spread, 0.0, 1.0)
    mixed: npt.NDArray[np.float64] = inv_freq * ((1.0 - keep) / scaling.factor + keep)
    return mixed
