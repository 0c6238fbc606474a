"""What of a layer depends on the position alone, or on nothing.

Owns these tables on the device, and that layers share them. Knows no weights and no ops.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoint.config import AttentionConfig, ModelConfig
from ..device.arguments import Array
from ..device.ops import Ops
from .rope import query_scales, rope_tables


@dataclass(frozen=True, slots=True)
class Tables:
    """What depends on the position alone, for one layer."""

    rope: tuple[Array, Array]  # cos and sin
    none: tuple[Array, Array]  # the same of no dimension: nothing is rotated
    q_scales: Array | None  # (max_seq_len,)
    ones: Array | None  # (n_kv_heads * head_dim,): the weights of a norm that has none


def layer_tables(config: ModelConfig, ops: Ops, max_seq_len: int) -> Sequence[Tables]:
    """Those of each layer; layers share them."""
    ropes = [rope_tables(rope, max_seq_len) for rope in config.ropes]
    stored = [(ops.table(cos), ops.table(sin)) for cos, sin in ropes]
    empty = np.zeros((max_seq_len, 0), np.float32)
    none = ops.table(empty), ops.table(empty)
    scalings = dict.fromkeys(layer.attention.query_scaling for layer in config.layers)
    scales = {
        each: None if each is None else ops.table(query_scales(each, max_seq_len))
        for each in scalings
    }
    widths = {_normed_values(layer.attention) for layer in config.layers} - {0}
    ones = {width: ops.table(np.ones(width, np.float32)) for width in widths}
    return [
        Tables(
            rope=none if layer.attention.rope is None else stored[layer.attention.rope],
            none=none,
            q_scales=scales[layer.attention.query_scaling],
            ones=ones.get(_normed_values(layer.attention)),
        )
        for layer in config.layers
    ]


def _normed_values(attention: AttentionConfig) -> int:
    """How many numbers of a row are values that are normed."""
    return attention.kv_dim if attention.v_norm and attention.kv_from is None else 0
