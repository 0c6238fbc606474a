"""The weights that the decoder runs on, and their bytes.

The ops know how a matrix lies in memory, `loading.py` where a weight comes from.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..checkpoint.config import ModelConfig
from ..checkpoint.sources import ModelSources
from ..checkpoint.tensors import model_sources
from ..device.arguments import Array, Matrix
from ..device.formats import matrix_bytes, sections
from ..device.mixed import ModelFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; None for what it does not have."""

    attention_norm: Array | None  # (dim,)
    attention_norm_bias: Array | None = None
    wqkv: Matrix  # ((n_heads + 2 * n_kv_heads) * head_dim, dim): q, then k, then v; or q alone
    bqkv: Array | None
    q_norm: Array | None  # (head_dim,), or (n_heads * head_dim,) unless QkNorm.is_plain
    k_norm: Array | None
    sinks: Array | None = None  # (n_heads,)
    wo: Matrix  # (dim, n_heads * head_dim)
    bo: Array | None
    post_attention_norm: Array | None = None  # (dim,)
    mlp_norm: Array | None  # (dim,)
    mlp_norm_bias: Array | None = None
    w_gate_up: Matrix  # (2 * hidden_dim, dim): gate, then up; (hidden_dim, dim) without a gate
    b_gate_up: Array | None
    w_down: Matrix  # (dim, hidden_dim)
    b_down: Array | None
    post_mlp_norm: Array | None = None  # (dim,)
    factor: Array | None = None  # (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A whole model; `head` is `embedding` itself when they are tied."""

    embedding: Matrix  # (vocab_size, dim)
    positions: Array | None = None  # (n_positions * dim,)
    layers: tuple[LayerWeights, ...]
    norm: Array  # (dim,)
    norm_bias: Array | None = None
    head: Matrix  # (vocab_size, dim)
    head_bias: Array | None = None
    formats: ModelFormats


# Bytes of a matrix in a format, (n_out, n_in).
MatrixBytes = Callable[[str, int, int], int]


def weight_bytes(
    config: ModelConfig, formats: ModelFormats, matrix_bytes: MatrixBytes = matrix_bytes
) -> int:
    """Bytes of the loaded weights in these formats, by the `matrix_bytes` of the ops."""
    sources = model_sources(config)
    by_name = format_of(sources, formats)
    n_bytes = 0
    for source in sources.needed(tied=config.tie_embeddings):
        shape = source.part_shape
        if len(shape) == 1:
            n_bytes += 4 * shape[0]
        else:
            n_bytes += matrix_bytes(by_name[source.name], *shape)
    return n_bytes


def step_bytes(
    config: ModelConfig, formats: ModelFormats, matrix_bytes: MatrixBytes = matrix_bytes
) -> int:
    """Bytes of the weights that a decode step reads: all but an untied embedding."""
    table = matrix_bytes(formats.embedding, config.vocab_size, config.dim)
    whole = weight_bytes(config, formats, matrix_bytes)
    return whole - (0 if config.tie_embeddings else table)


def format_of(sources: ModelSources, formats: ModelFormats) -> dict[str, str]:
    """The format of each stored tensor that is a matrix or a part of one."""
    of = {sources.embedding.name: formats.embedding, sources.head.name: formats.head}
    for layer, own in zip(sources.layers, formats.layers, strict=True):
        for stacked, format_ in (
            (layer.wqkv, own.wqkv),
            (layer.wo, own.wo),
            (layer.w_gate_up, own.w_gate_up),
            (layer.w_down, own.w_down),
        ):
            of |= {
                source.name: part_format
                for part_format, which in sections(format_, len(stacked))
                for source in stacked[which]
            }
    return of
