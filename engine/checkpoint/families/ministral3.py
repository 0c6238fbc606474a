"""Ministral 3: Mistral with YaRN and a temperature of the queries that grows with the position."""

from ...files import JsonObject
from ..config import LayerConfig, QueryScaling
from ..limits import MAX_CONTEXT
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import sliding_window


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    layer = sizes.layer(window=sliding_window(file, default=0), query_scaling=_query_scaling(file))
    return (layer,) * sizes.n_layers


def _query_scaling(file: JsonObject) -> QueryScaling | None:
    key = "rope_scaling" if file.has("rope_scaling") else "rope_parameters"
    if not file.has(key):
        return None
    rope = file.nested(key)
    beta = rope.number("llama_4_scaling_beta", low=0.0, high=1e6, default=0.0)
    if not beta:
        return None
    original = rope.integer("original_max_position_embeddings", low=2, high=MAX_CONTEXT)
    return QueryScaling(beta, original)


FAMILY = Family(
    architecture="Ministral3ForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=262_144,
    n_kv_heads=8,
    head_dim=128,
    norm_eps=1e-5,
)
