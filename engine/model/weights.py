"""The weights that the decoder runs on, and their bytes.

The ops know how a matrix lies in memory, `loading.py` where a weight comes from.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..checkpoint.config import ModelConfig
from ..checkpoint.tensors import model_sources
from ..device.arguments import Array, Matrix
from ..device.formats import matrix_bytes, table_format


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer."""

    attention_norm: Array  # (dim,)
    wqkv: Matrix  # ((n_heads + 2 * n_kv_heads) * head_dim, dim): q, then k, then v
    bqkv: Array | None
    q_norm: Array | None  # (head_dim,)
    k_norm: Array | None  # (head_dim,)
    wo: Matrix  # (dim, n_heads * head_dim)
    bo: Array | None
    mlp_norm: Array  # (dim,)
    w_gate_up: Matrix  # (2 * hidden_dim, dim): gate, then up
    b_gate_up: Array | None
    w_down: Matrix  # (dim, hidden_dim)
    b_down: Array | None


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model; `head` is `embedding` itself when they are tied."""

    embedding: Matrix  # (vocab_size, dim)
    layers: tuple[LayerWeights, ...]
    norm: Array  # (dim,)
    head: Matrix  # (vocab_size, dim)


# Bytes of a matrix in a format, (n_out, n_in).
MatrixBytes = Callable[[str, int, int], int]


def weight_bytes(
    config: ModelConfig, format_: str, matrix_bytes: MatrixBytes = matrix_bytes
) -> int:
    """Bytes of the loaded weights in `format_`, by the `matrix_bytes` of the ops."""
    sources = model_sources(config)
    tables = {sources.embedding.name, sources.head.name}
    n_bytes = 0
    for source in sources.needed(tied=config.tie_embeddings):
        shape = source.part_shape
        if len(shape) == 1:
            n_bytes += 4 * shape[0]
        else:
            own = table_format(format_) if source.name in tables else format_
            n_bytes += matrix_bytes(own, *shape)
    return n_bytes


def step_bytes(config: ModelConfig, format_: str, matrix_bytes: MatrixBytes = matrix_bytes) -> int:
    """Bytes of the weights that a decode step reads: all but an untied embedding."""
    table = matrix_bytes(table_format(format_), config.vocab_size, config.dim)
    whole = weight_bytes(config, format_, matrix_bytes)
    return whole - (0 if config.tie_embeddings else table)
