"""Which format each matrix of a model gets.

Owns the rule of `4bit`: the matrices where rounding costs most get a fifth bit, for the bytes that
the head saves with six bits instead of eight. Knows the matrices of a layer, not their names in a
checkpoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..checkpoint.config import LayerConfig, ModelConfig
from .formats import matrix_bytes, table_format


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """The formats of a layer's matrices."""

    wqkv: str
    wo: str
    w_gate_up: str
    w_down: str


@dataclass(frozen=True, slots=True)
class ModelFormats:
    """The formats of a model's matrices."""

    tables: str  # embedding and head
    layers: tuple[LayerFormats, ...]


# By how much less a model's output changes per byte, measured on a real model (bench/RESULTS.md).
_MOST_SENSITIVE_FIRST = ("wo", "w_down", "wqkv", "w_gate_up")


def uniform_formats(config: ModelConfig, format_: str) -> ModelFormats:
    """All layers in `format_`."""
    layer = LayerFormats(format_, format_, format_, format_)
    return ModelFormats(table_format(format_), (layer,) * config.n_layers)


def mixed_formats(config: ModelConfig, format_: str) -> ModelFormats:
    """As `uniform_formats`, but `4bit` is a mixture: a head of six bits, and five bits for as many
    matrices as fit into the bytes that eight bits would take there.
    """
    uniform = uniform_formats(config, format_)
    if format_ != "4bit":
        return uniform
    head = config.vocab_size, config.dim
    left = matrix_bytes("8bit", *head) - matrix_bytes("6bit", *head)
    layers = list(uniform.layers)
    for kind, index, shape in _matrices(config):
        more = matrix_bytes("5bit", *shape) - matrix_bytes("4bit", *shape)
        if more <= left:
            left -= more
            layers[index] = replace(layers[index], **{kind: "5bit"})
    return ModelFormats("6bit", tuple(layers))


def _matrices(config: ModelConfig) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Kind, layer and shape of each matrix, the most sensitive ones first."""
    for kind in _MOST_SENSITIVE_FIRST:
        for index, layer in enumerate(config.layers):
            yield kind, index, _shapes(config.dim, layer)[kind]


def _shapes(dim: int, layer: LayerConfig) -> dict[str, tuple[int, int]]:
    attention, hidden = layer.attention, layer.mlp.hidden_dim
    heads = attention.n_heads * attention.head_dim
    return {
        "wqkv": (heads + 2 * attention.n_kv_heads * attention.head_dim, dim),
        "wo": (dim, heads),
        "w_gate_up": (2 * hidden, dim),
        "w_down": (dim, hidden),
    }
