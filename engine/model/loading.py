"""Stored tensors -> the weights that the decoder runs on.

Owns the fusion of q, k, v and of gate and up into one matrix each, and the order of reading. The
family knows where a weight is in a checkpoint (`checkpoint/sources.py`), the ops how a matrix lies
in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from ..checkpoint.activation import Xielu
from ..checkpoint.config import ModelConfig
from ..checkpoint.sources import LayerSources, ModelSources, Source
from ..checkpoint.stored_rows import StoredRows
from ..checkpoint.tensors import model_sources
from ..device.arguments import Matrix
from ..device.formats import Format
from ..device.mixed import LayerFormats, ModelFormats
from ..device.ops import Ops
from ..stored_tensor import StoredTensor
from .calibration import Calibration, Importance
from .common_keys import with_common_keys
from .embeddings import Embedding
from .reader import Progress, Reader
from .weights import (
    ExpertNorms,
    ExpertWeights,
    LatentWeights,
    LayerEmbeddingTable,
    LayerEmbeddingWeights,
    LayerWeights,
    RecurrentWeights,
    Weights,
)

if TYPE_CHECKING:
    from ..device.cpu.panel_cache import PanelCache

# Of a layer that is run before it is quantised.
_COPIES = LayerFormats(*12 * ("bfloat16",))


def load_weights(
    tensors: Mapping[str, StoredTensor],
    config: ModelConfig,
    ops: Ops,
    *,
    panels: "PanelCache | None" = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Weights:
    """Reads `tensors`, as `check_tensors` returns them, into memory of `ops`, in its format.

    `panels` has matrices that were read before, or takes those that are read now. `on_progress`
    gets (bytes read, bytes in all) after each tensor. Raises ModelLoadError.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    formats, sources = ops.formats(config, dtypes), model_sources(config)
    needed = sources.needed(tied=config.tie_embeddings)
    total = sum(source.share * tensors[source.name].n_bytes for source in needed)
    progress = Progress(round(total), on_progress)
    with ops.reader() as read:
        reader = Reader(tensors, ops, read, panels, progress)
        embedding = Embedding(
            table=reader.matrix((sources.embedding,), formats.embedding),
            positions=reader.vector(sources.positions),
            of_layers=_read_layer_table(reader, tensors, sources, formats),
        )
        is_packed = panels is not None and panels.is_complete
        calibrates = ops.calibrates and not is_packed
        calibration = Calibration(config, ops, embedding) if calibrates else None
        weights = Weights(
            embedding=embedding.table,
            positions=embedding.positions,
            layer_embeddings=embedding.of_layers,
            layers=tuple(
                read_layer(reader, layer, own, calibration)
                for layer, own in zip(sources.layers, formats.layers, strict=True)
            ),
            norm=reader.norm((sources.norm,)),
            norm_bias=reader.vector(sources.norm_bias),
            head=(
                embedding.table
                if config.tie_embeddings
                else reader.matrix((sources.head,), formats.head)
            ),
            head_bias=reader.vector(sources.head_bias),
            formats=formats,
        )
    return with_common_keys(weights, config, ops) if ops.shares_keys else weights


def _read_layer_table(
    reader: Reader,
    tensors: Mapping[str, StoredTensor],
    sources: ModelSources,
    formats: ModelFormats,
) -> LayerEmbeddingTable | None:
    """The table itself is not read."""
    if not sources.layer_table:
        return None
    (table,) = sources.layer_table
    return LayerEmbeddingTable(
        table=StoredRows(tensors[table.name]),
        projection=reader.matrix(sources.layer_projection, formats.layer_projection),
        norm=reader.norm(sources.layer_projection_norm),
    )


def read_layer(
    reader: Reader,
    layer: LayerSources,
    formats: LayerFormats,
    calibration: Calibration | None,
) -> LayerWeights:
    """With `calibration`, a copy of the layer that loses little is run first."""
    read, own = (reader.matrix, formats) if calibration is None else (reader.copy, _COPIES)
    gated = len(layer.w_gate_up) > 1
    weights = LayerWeights(
        attention_norm=reader.optional_norm(layer.attention_norm),
        attention_norm_bias=reader.vector(layer.attention_norm_bias),
        wqkv=read(layer.wqkv, own.wqkv),
        bqkv=reader.vector(layer.bqkv),
        q_norm=reader.optional_norm(layer.q_norm),
        k_norm=reader.optional_norm(layer.k_norm),
        sinks=reader.vector(layer.sinks),
        w_gate=read(layer.w_gate, own.w_gate),
        b_gate=reader.vector(layer.b_gate),
        recurrent=_read_recurrent(reader, layer),
        wo=read(layer.wo, own.wo),
        bo=reader.vector(layer.bo),
        post_attention_norm=reader.optional_norm(layer.post_attention_norm),
        mlp_norm=reader.optional_norm(layer.mlp_norm),
        mlp_norm_bias=reader.vector(layer.mlp_norm_bias),
        w_gate_up=read(layer.w_gate_up, own.w_gate_up, gated=gated),
        b_gate_up=reader.vector(layer.b_gate_up),
        w_down=read(layer.w_down, own.w_down),
        b_down=reader.vector(layer.b_down),
        xielu=Xielu(*reader.numbers(layer.xielu)) if layer.xielu else None,
        post_mlp_norm=reader.optional_norm(layer.post_mlp_norm),
        factor=reader.vector(layer.factor),
        experts=_read_experts(reader, layer, own, read),
        embedding=_read_embedding(reader, layer, own, read),
    )
    if calibration is None:
        reader.forget()
        return weights
    weights = _calibrated(reader, layer, formats, weights, calibration.next_layer(weights))
    reader.forget()
    return weights


def _calibrated(
    reader: Reader,
    layer: LayerSources,
    formats: LayerFormats,
    weights: LayerWeights,
    found: Importance,
) -> LayerWeights:
    """The layer with its matrices in `formats` instead of the copies that were run."""
    gated, of_experts = len(layer.w_gate_up) > 1, frozenset(layer.experts_gate_up)

    def read(sources: Sequence[Source], format_: Format, *, gated: bool = False) -> Matrix:
        """Of experts, of the projections around them, and of the layer's embedding."""
        importance = found.experts_gate_up if of_experts.issuperset(sources) else None
        if sources == layer.w_latent_in:
            importance = found.w_gate_up
        return reader.matrix(sources, format_, gated=gated, importance=importance)

    return replace(
        weights,
        wqkv=reader.matrix(layer.wqkv, formats.wqkv, importance=found.wqkv),
        w_gate=reader.matrix(layer.w_gate, formats.w_gate, importance=found.wqkv),
        wo=reader.matrix(layer.wo, formats.wo, importance=found.wo),
        w_gate_up=reader.matrix(
            layer.w_gate_up, formats.w_gate_up, gated=gated, importance=found.w_gate_up
        ),
        w_down=reader.matrix(layer.w_down, formats.w_down, importance=found.w_down),
        experts=_read_experts(reader, layer, formats, read),
        embedding=_read_embedding(reader, layer, formats, read),
    )


def _read_embedding(
    reader: Reader, layer: LayerSources, formats: LayerFormats, read: "_Read"
) -> LayerEmbeddingWeights | None:
    if not layer.w_embedding_gate:
        return None
    return LayerEmbeddingWeights(
        gate=read(layer.w_embedding_gate, formats.embedding_gate),
        out=read(layer.w_embedding_out, formats.embedding_out),
        norm=reader.norm(layer.embedding_norm),
    )


def _read_recurrent(reader: Reader, layer: LayerSources) -> RecurrentWeights | None:
    if not layer.conv:
        return None
    return RecurrentWeights(
        conv=reader.norm(layer.conv),  # all zeros are a hole in the file here, too
        conv_bias=reader.vector(layer.conv_bias),
        a_log=reader.vector(layer.a_log),
        dt_bias=reader.vector(layer.dt_bias),
        norm=reader.optional_norm(layer.state_norm),
        skip=reader.vector(layer.skip),
    )


def _read_experts(
    reader: Reader, layer: LayerSources, formats: LayerFormats, read: "_Read"
) -> ExpertWeights | None:
    if not layer.w_router:
        return None
    gate_up, down, n = layer.experts_gate_up, layer.experts_down, layer.n_gate_up
    return ExpertWeights(
        router=read(layer.w_router, formats.router),
        b_router=reader.vector(layer.b_router),
        selection_bias=reader.vector(layer.selection_bias),
        gate_up=tuple(
            read(gate_up[i : i + n], formats.experts_gate_up, gated=n > 1)
            for i in range(0, len(gate_up), n)
        ),
        b_gate_up=reader.vector(layer.b_experts_gate_up),
        down=tuple(read((source,), formats.experts_down) for source in down),
        b_down=reader.vector(layer.b_experts_down),
        scales=reader.vector(layer.expert_scales),
        norms=_read_expert_norms(reader, layer),
        latent=_read_latent(reader, layer, formats, read),
    )


def _read_latent(
    reader: Reader, layer: LayerSources, formats: LayerFormats, read: "_Read"
) -> LatentWeights | None:
    if not layer.w_latent_in:
        return None
    return LatentWeights(
        w_in=read(layer.w_latent_in, formats.latent_in),
        b_in=reader.vector(layer.b_latent_in),
        w_out=read(layer.w_latent_out, formats.latent_out),
        b_out=reader.vector(layer.b_latent_out),
    )


def _read_expert_norms(reader: Reader, layer: LayerSources) -> ExpertNorms | None:
    if not layer.experts_norm:
        return None
    return ExpertNorms(
        router=reader.norm(layer.router_norm),
        experts=reader.norm(layer.experts_norm),
        post_experts=reader.norm(layer.post_experts_norm),
        post_shared=reader.norm(layer.post_shared_norm),
    )


class _Read(Protocol):
    """Reads a matrix, or a copy of it."""

    def __call__(
        self, sources: Sequence[Source], format_: Format, *, gated: bool = False
    ) -> Matrix: ...
