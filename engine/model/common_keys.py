"""What the keys of a head have in common, for keys in 4 bits: what is taken from them, and what
makes their dimensions matter alike, before they are stored.

Owns the measurement, on ids without meaning (`layer_run.py`): the result belongs to the model and
to the build, never to a prompt. csrc/cpu/attention_common.h says what attention does with it; the
scores stay what they are, but for rounding. CPU only.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..checkpoint.config import AttentionConfig, LayerConfig, ModelConfig
from ..device.ops import Ops
from .embeddings import Embedding
from .layer import Layer
from .layer_run import Doubles, LayerRun, doubles
from .weights import LayerWeights, Weights

Floats = npt.NDArray[np.float32]

# Of the mean over a head's dimensions: what is taken for their sizes at least.
_LEAST = 1e-2


def with_common_keys(weights: Weights, config: ModelConfig, ops: Ops) -> Weights:
    """`weights` with what the keys of each layer have in common."""
    embedding = Embedding(
        table=weights.embedding, positions=weights.positions, of_layers=weights.layer_embeddings
    )
    together = LayerRun(config, ops, embedding)
    # Where each token sees itself alone, all of them are the first of a sequence.
    alone = LayerRun(_without_past(config), ops, embedding)
    is_alone = weights.positions is None and not config.state_shapes
    layers: list[LayerWeights] = []
    for own in weights.layers:
        layer, first = together.next_layer(own), alone.next_layer(own)
        together.run(layer)
        alone.run(first)
        source = layer.config.attention.kv_from
        if not layer.config.attention.n_heads:
            found = None
        elif source is not None:
            found = layers[source].common_keys
        else:
            found = _common(_Heads.of(layer), _Heads.of(first).keys[: None if is_alone else 1])
        layers.append(replace(own, common_keys=found))
    return replace(weights, layers=tuple(layers))


def _without_past(config: ModelConfig) -> ModelConfig:
    def changed(layer: LayerConfig) -> LayerConfig:
        return replace(layer, attention=replace(layer.attention, window=1))

    return replace(config, layers=tuple(changed(layer) for layer in config.layers))


class _Heads:
    """Queries and keys of a layer that has run, normed but not rotated, (rows, heads, head_dim)."""

    def __init__(self, queries: Doubles, keys: Doubles, layer: Layer) -> None:
        self.queries, self.keys = queries, keys
        attention = layer.config.attention
        norm = attention.qk_norm
        self.are_turned = attention.rope is not None and norm is not None and norm.after_rope
        cos, sin = layer.tables.none if self.are_turned else layer.tables.rope
        self.cos, self.sin = doubles(cos), doubles(sin)

    @classmethod
    def of(cls, layer: Layer) -> "_Heads":
        attention, eps = layer.config.attention, layer.model.norm_eps
        heads = doubles(layer.mixed).reshape(-1, _n_heads(attention), attention.head_dim)
        n_keys_end = attention.n_heads + attention.n_kv_heads
        queries, keys, _ = np.split(heads, (attention.n_heads, n_keys_end), axis=1)
        norm = attention.qk_norm
        if norm is not None and norm.is_plain:
            assert layer.weights.q_norm is not None, "both are there with a norm"
            assert layer.weights.k_norm is not None, "both are there with a norm"
            queries = _normed(queries, doubles(layer.weights.q_norm), eps)
            keys = _normed(keys, doubles(layer.weights.k_norm), eps)
        return cls(queries, keys, layer)

    def turned(self, heads: Doubles, positions: slice) -> Doubles:
        """`heads` as they are at these positions; with one position, all of them there."""
        half = self.cos.shape[1]
        cos, sin = self.cos[positions, None], self.sin[positions, None]
        first, second, rest = np.split(heads, (half, 2 * half), axis=2)
        both = first * cos - second * sin, second * cos + first * sin
        return np.concatenate((*both, rest), axis=2)


def _common(heads: _Heads, first: Doubles) -> Floats:
    """(n_kv_heads, 3, head_dim), as csrc/ops.h describes it. `first`: keys without a past.

    All rows lie in one chunk, whose start is position 0: their mean there is the chunk's.
    """
    rows, n_kv_heads, head_dim = heads.keys.shape
    keys, queries = (heads.turned(each, slice(rows)) for each in (heads.keys, heads.queries))
    firsts = heads.turned(first, slice(1)).mean(0)
    others = keys[1:] if rows > 1 else keys
    means = others.mean(0)
    if heads.are_turned:  # they are already at their positions, and a chunk cannot turn them
        firsts = means = np.zeros_like(means)
    key_sizes = _sizes(others - means)
    groups = queries.reshape(rows, n_kv_heads, -1, head_dim)
    query_sizes = _sizes(groups.swapaxes(1, 2).reshape(-1, n_kv_heads, head_dim))
    # An error of a key is spread over its dimensions, and each counts as the query is large there.
    # Of all scales these make the error of a score least.
    scales = np.sqrt(key_sizes / query_sizes)
    # The start of a chunk turns the mean, and multiplies it as the tables do.
    turning = 2 * heads.cos.shape[1]
    means[:, :turning] /= heads.cos[0, 0] if turning else 1.0
    found = np.stack((firsts, means, scales), axis=1).astype(np.float32)
    # A model that computes no numbers has nothing in common.
    return found if np.isfinite(found).all() else _nothing(n_kv_heads, head_dim)


def _nothing(n_kv_heads: int, head_dim: int) -> Floats:
    found = np.zeros((n_kv_heads, 3, head_dim), np.float32)
    found[:, 2] = 1.0
    return found


def _sizes(heads: Doubles) -> Doubles:
    """Of each dimension, (heads, head_dim): the root mean square over the rows."""
    with np.errstate(all="ignore"):
        sizes = np.sqrt(np.square(heads).mean(0))
        mean = sizes.mean(-1, keepdims=True)
        found: Doubles = np.where(mean > 0, np.maximum(sizes, _LEAST * mean), 1.0)
    return found


def _normed(heads: Doubles, weight: Doubles, eps: float) -> Doubles:
    mean_squares = np.square(heads).mean(-1, keepdims=True)
    normed: Doubles = heads / np.sqrt(mean_squares + eps) * weight
    return normed


def _n_heads(attention: AttentionConfig) -> int:
    return attention.n_heads + 2 * attention.n_kv_heads
