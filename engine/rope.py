"""Rotary position embedding as two tables.

Owns the frequency rules (plain, linear, llama3). Knows nothing of heads or tensors' layout: the
`head_norm_rope` op applies the tables.
"""

import math

import torch

from .config import Llama3Scaling, RopeConfig


def rope_tables(rope: RopeConfig, max_seq_len: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of pos * inv_freq, each float32 (max_seq_len, rotary_dim / 2).

    The angles are computed in float64: float32 loses three digits at position 10,000.
    """
    positions = torch.arange(max_seq_len, dtype=torch.float64)
    angles = torch.outer(positions, _inverse_frequencies(rope))  # (max_seq_len, rotary_dim / 2)
    return angles.cos().float(), angles.sin().float()


def _inverse_frequencies(rope: RopeConfig) -> torch.Tensor:
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.float64) / rope.rotary_dim
    inv_freq = rope.theta**-exponents
    if rope.scaling is None:
        return inv_freq
    if isinstance(rope.scaling, Llama3Scaling):
        return _llama3(inv_freq, rope.scaling)
    return inv_freq / rope.scaling.factor


def _llama3(inv_freq: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    # How often a frequency turns within the original context decides what becomes of it: often
    # (>= high) is kept, seldom (<= low) is slowed by the factor, between is a mix of the two.
    turns = scaling.original_max_seq_len * inv_freq / (2 * math.pi)
    spread = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / spread).clamp(0.0, 1.0)
    return inv_freq * ((1.0 - keep) / scaling.factor + keep)
