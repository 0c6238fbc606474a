"""What a token is before the first layer, and what each layer may add of it.

Owns the ops of embeddings: the model's own, those of each layer, and how a layer adds its own
behind its feed-forward part. Knows no other part of a layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..checkpoint.activation import Activation
from ..checkpoint.config import ModelConfig
from ..device.arguments import (
    AddNorm,
    Array,
    Embed,
    Linear,
    LookUp,
    Matrix,
    NormLinear,
    Times,
)
from ..device.ops import Program
from .weights import LayerEmbeddingTable, LayerEmbeddingWeights

# An activation of this width, (max_rows, width).
RowsOf = Callable[[int], Array]


@dataclass(frozen=True, slots=True)
class LayerEmbeddingRows:
    """Activations of models with embeddings of each layer."""

    all_layers: Array  # (max_rows, n_layers * width)
    projected: Array  # the same
    inner: Array  # (max_rows, width)

    @classmethod
    def of(cls, config: ModelConfig, rows_of: RowsOf) -> "LayerEmbeddingRows | None":
        """None for models without."""
        found = config.ends.layer_embeddings
        if found is None:
            return None
        total = config.n_layers * found.dim
        return cls(rows_of(total), rows_of(total), rows_of(found.dim))


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The weights before the first layer."""

    table: Matrix
    positions: Array | None
    of_layers: LayerEmbeddingTable | None

    def append(
        self,
        program: Program,
        config: ModelConfig,
        *,
        out: Array,
        rows: LayerEmbeddingRows | None,
    ) -> None:
        """A token's numbers into `out`, and those for each layer into `rows`."""
        program.append(
            Embed(
                table=self.table,
                scale=config.ends.embedding_scale,
                positions=self.positions,
                out=out,
            )
        )
        scales, weights = config.ends.layer_embeddings, self.of_layers
        if scales is None or weights is None or rows is None:
            return
        program.append(LookUp(table=weights.table, scale=scales.table_scale, out=rows.all_layers))
        program.append(
            NormLinear(
                residual=out,
                norm=None,
                eps=config.norm_eps,
                matrix=weights.projection,
                scale=scales.projection_scale,
                out=rows.projected,
            )
        )
        program.append(
            AddNorm(
                x=rows.projected,
                norm=weights.norm,
                eps=config.norm_eps,
                residual=rows.all_layers,
                scale=scales.normed_scale,
                out=rows.all_layers,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEmbedding:
    """The embedding of one layer."""

    weights: LayerEmbeddingWeights
    rows: LayerEmbeddingRows
    index: int
    """Of the layer."""
    activation: Activation
    eps: float

    def append(
        self, program: Program, *, residual: Array, added: Array, factor: Array | None
    ) -> None:
        """residual = factor * (residual + norm(out * (activation(gate * residual) * embedding))).
        `added` is overwritten.
        """
        inner, weights = self.rows.inner, self.weights
        program.append(
            NormLinear(
                residual=residual,
                norm=None,
                eps=self.eps,
                matrix=weights.gate,
                activation=self.activation,
                out=inner,
            )
        )
        others, begin = self.rows.all_layers, self.index * weights.gate.n_out
        program.append(Times(x=inner, others=others, begin=begin))
        program.append(Linear(x=inner, matrix=weights.out, out=added))
        program.append(
            AddNorm(
                x=added,
                norm=weights.norm,
                eps=self.eps,
                residual=residual,
                factor=factor,
                out=residual,
            )
        )
