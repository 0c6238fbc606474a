"""Embeddings that each layer adds for itself, as in Gemma 4's E-models: their scales, and where
their tensors are.

Owns the way from names and a configuration to sources. Knows no file.
"""

import math
from dataclasses import dataclass

from ..config import LayerConfig, LayerEmbeddings, ModelConfig
from ..sources import Source, Sources


def gemma_layer_embeddings(width: int, dim: int) -> LayerEmbeddings:
    """`width`: of the embedding of one layer; `dim`: of the model."""
    # What is looked up and what is projected have equal weight in a sum of length about 1.
    half = math.sqrt(0.5)
    return LayerEmbeddings(
        width,
        table_scale=half * math.sqrt(width),
        projection_scale=1.0 / math.sqrt(dim),
        normed_scale=half,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEmbeddingNames:
    """Names without ".weight"; those of a layer without its prefix. The defaults are those of
    Hugging Face checkpoints.
    """

    table: str = "model.embed_tokens_per_layer"
    projection: str = "model.per_layer_model_projection"
    projection_norm: str = "model.per_layer_projection_norm"
    gate: str = "per_layer_input_gate"
    out: str = "per_layer_projection"
    norm: str = "post_per_layer_input_norm"

    def of_model(self, config: ModelConfig) -> dict[str, Sources]:
        found = config.ends.layer_embeddings
        if found is None:
            return {}
        total = config.n_layers * found.dim
        return {
            "layer_table": (Source(f"{self.table}.weight", (config.vocab_size, total)),),
            "layer_projection": (Source(f"{self.projection}.weight", (total, config.dim)),),
            "layer_projection_norm": (Source(f"{self.projection_norm}.weight", (found.dim,)),),
        }

    def of_layer(self, prefix: str, layer: LayerConfig, dim: int) -> dict[str, Sources]:
        width = layer.embedding_dim
        if not width:
            return {}
        return {
            "w_embedding_gate": (Source(f"{prefix}{self.gate}.weight", (width, dim)),),
            "w_embedding_out": (Source(f"{prefix}{self.out}.weight", (dim, width)),),
            "embedding_norm": (Source(f"{prefix}{self.norm}.weight", (dim,)),),
        }


LAYER_EMBEDDING_NAMES = LayerEmbeddingNames()
