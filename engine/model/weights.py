"""The weights that the decoder runs on, and their bytes.

The ops know how a matrix lies in memory, `loading.py` where a weight comes from.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..checkpoint.activation import Xielu
from ..checkpoint.config import ModelConfig
from ..checkpoint.sources import ModelSources, Source
from ..checkpoint.tensors import model_sources
from ..device.arguments import Array, Matrix, RowTable
from ..device.formats import matrix_bytes, sections
from ..device.mixed import ModelFormats


class _NoMatrix:
    """What a layer does not have."""

    n_out = n_in = n_bytes = 0
    format = ""


NO_MATRIX: Matrix = _NoMatrix()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNorms:
    """The norms of experts that stand beside what all tokens go through, (dim,) each."""

    router: Array
    experts: Array
    post_experts: Array
    post_shared: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentWeights:
    """The projections before and behind experts of another width than the model's."""

    w_in: Matrix  # (latent_dim, dim)
    b_in: Array | None
    w_out: Matrix  # (dim, latent_dim)
    b_out: Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertWeights:
    """The experts of one layer and their router; None for what it does not have."""

    router: Matrix  # (n_experts, dim), and one more row for the gate of what is shared
    b_router: Array | None
    selection_bias: Array | None  # (n_experts,)
    gate_up: tuple[Matrix, ...]  # (2 * hidden_dim, dim) of each expert: gate, then up; or up alone
    b_gate_up: Array | None  # (n_experts * 2 * hidden_dim,), or (n_experts * hidden_dim,)
    down: tuple[Matrix, ...]  # (dim, hidden_dim) of each expert
    b_down: Array | None  # (n_experts * dim,)
    scales: Array | None = None  # (n_experts,)
    norms: ExpertNorms | None = None
    latent: LatentWeights | None = None  # with it, dim is latent_dim in the shapes of experts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEmbeddingWeights:
    """What a layer makes of its embedding of a token."""

    gate: Matrix  # (width, dim)
    out: Matrix  # (dim, width)
    norm: Array  # (dim,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentWeights:
    """What a recurrent layer has besides its projections; None for what it does not have."""

    conv: Array  # (channels * kernel,): of each channel, the oldest row first
    conv_bias: Array | None  # (channels,)
    a_log: Array | None  # (n_heads,)
    dt_bias: Array | None  # (n_heads,)
    norm: Array | None  # (v_dim,); of Mamba 2: (n_heads * head_dim,)
    skip: Array | None = None  # (n_heads,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; None for what it does not have."""

    attention_norm: Array | None  # (dim,)
    attention_norm_bias: Array | None = None
    # ((n_heads + 2 * n_kv_heads) * head_dim, dim): q, then k, then v; or q alone; or what a
    # recurrent layer reads
    wqkv: Matrix
    bqkv: Array | None
    q_norm: Array | None  # (head_dim,), or (n_heads * head_dim,) unless QkNorm.is_plain
    k_norm: Array | None
    sinks: Array | None = None  # (n_heads,)
    w_gate: Matrix = NO_MATRIX  # (n_heads * head_dim, dim)
    b_gate: Array | None = None
    recurrent: RecurrentWeights | None = None
    wo: Matrix  # (dim, n_heads * head_dim)
    bo: Array | None
    post_attention_norm: Array | None = None  # (dim,)
    mlp_norm: Array | None  # (dim,)
    mlp_norm_bias: Array | None = None
    # In a layer of experts, what all tokens go through; NO_MATRIX if there is no such part.
    w_gate_up: Matrix  # (2 * hidden_dim, dim): gate, then up; (hidden_dim, dim): no gate
    b_gate_up: Array | None
    w_down: Matrix  # (dim, hidden_dim)
    b_down: Array | None
    xielu: Xielu | None = None
    post_mlp_norm: Array | None = None  # (dim,)
    experts: ExpertWeights | None = None
    factor: Array | None = None  # (1,)
    embedding: LayerEmbeddingWeights | None = None
    common_keys: Array | None = None  # (n_kv_heads, 3, head_dim): found by common_keys.py


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEmbeddingTable:
    """Embeddings of each token for all layers, one after the other."""

    table: RowTable  # (vocab_size, n_layers * width)
    projection: Matrix  # (n_layers * width, dim)
    norm: Array  # (width,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A whole model; `head` is `embedding` itself when they are tied."""

    embedding: Matrix  # (vocab_size, dim)
    positions: Array | None = None  # (n_positions * dim,)
    layer_embeddings: LayerEmbeddingTable | None = None
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
    needed = sources.needed(tied=config.tie_embeddings)
    return _bytes_of(needed, format_of(sources, formats), matrix_bytes)


def _bytes_of(
    needed: Iterable[Source], formats: Mapping[str, str], matrix_bytes: MatrixBytes
) -> int:
    n_bytes = 0
    for source in needed:
        shape = source.part_shape
        if len(shape) == 1:
            n_bytes += 4 * shape[0]
        else:
            n_bytes += matrix_bytes(formats[source.part], *shape)
    return n_bytes


def step_bytes(
    config: ModelConfig, formats: ModelFormats, matrix_bytes: MatrixBytes = matrix_bytes
) -> int:
    """Bytes of the weights that a decode step reads: all but an untied embedding, and the experts
    that it does not choose.
    """
    table = matrix_bytes(formats.embedding, config.vocab_size, config.dim)
    whole = weight_bytes(config, formats, matrix_bytes)
    sources = model_sources(config)
    unused = _bytes_of(_unused(sources, config), format_of(sources, formats), matrix_bytes)
    return whole - unused - (0 if config.tie_embeddings else table)


def _unused(sources: ModelSources, config: ModelConfig) -> Iterator[Source]:
    """Of the experts of each layer, as many as a token does not go through."""
    for layer, own in zip(sources.layers, config.layers, strict=True):
        experts = own.mlp.experts
        if experts is not None:
            n = experts.n_used
            n_inner = layer.n_gate_up * n
            yield from (*layer.experts_gate_up[n_inner:], *layer.b_experts_gate_up[n_inner:])
            yield from (*layer.experts_down[n:], *layer.b_experts_down[n:])


def format_of(sources: ModelSources, formats: ModelFormats) -> dict[str, str]:
    """The format of each part of a stored tensor that is a matrix or a part of one."""
    of = {sources.embedding.part: formats.embedding, sources.head.part: formats.head}
    of |= {source.part: formats.layer_projection for source in sources.layer_projection}
    for layer, own in zip(sources.layers, formats.layers, strict=True):
        gate_up = own.experts_gate_up
        gate, up = (gate_up, gate_up) if isinstance(gate_up, str) else gate_up
        for stacked, format_ in (
            (layer.wqkv, own.wqkv),
            (layer.w_gate, own.w_gate),
            (layer.wo, own.wo),
            (layer.w_gate_up, own.w_gate_up),
            (layer.w_down, own.w_down),
            (layer.w_router, own.router),
            (layer.experts_gate_up[::2], gate),
            (layer.experts_gate_up[1::2], up),
            (layer.experts_down, own.experts_down),
            (layer.w_latent_in, own.latent_in),
            (layer.w_latent_out, own.latent_out),
            (layer.w_embedding_gate, own.embedding_gate),
            (layer.w_embedding_out, own.embedding_out),
        ):
            of |= {
                source.part: part_format
                for part_format, which in sections(format_, len(stacked))
                for source in stacked[which]
            }
    return of
