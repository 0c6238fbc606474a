"""StableLM: Llama with LayerNorm and heads that are rotated in part; its blocks may be parallel."""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig, ModelConfig, QkNorm
from ..rope_keys import RopeDefaults
from ..sources import ModelSources
from .family import Family, Sizes
from .llama import LLAMA_NAMES

_NAMES = replace(
    LLAMA_NAMES,
    q_norm="self_attn.q_layernorm.norms.{}",
    k_norm="self_attn.k_layernorm.norms.{}",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    has_norms = file.boolean("qk_layernorm", default=False)
    layer = sizes.layer(
        qkv_bias=file.boolean("use_qkv_bias", default=False),
        qk_norm=QkNorm(over="heads", centered=True) if has_norms else None,
        parallel=file.boolean("use_parallel_residual", default=False),
    )
    return (layer,) * sizes.n_layers


def _sources(config: ModelConfig) -> ModelSources:
    """A parallel block has one norm."""
    is_parallel = config.layers[0].parallel
    return (replace(_NAMES, mlp_norm="") if is_parallel else _NAMES).sources(config)


FAMILY = Family(
    architecture="StableLmForCausalLM",
    layers=_layers,
    sources=_sources,
    max_positions=4096,
    n_kv_heads=32,
    norm_eps=1e-5,
    eps_key="layer_norm_eps",
    centered_norms=True,
    norm_bias=True,
    rope=RopeDefaults(partial=0.25),
    reads=frozenset({"qk_layernorm", "use_parallel_residual"}),
)
