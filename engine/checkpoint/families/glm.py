"""GLM 4: heads that are rotated in part, in pairs that stand next to each other, and a fused gate;
GLM 4 0414 (Glm4) has norms on both sides.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES

_NAMES = replace(LLAMA_NAMES, gate_up=("mlp.gate_up_proj",), rope_pairs=True)
_SANDWICH = replace(
    _NAMES, post_attention_norm="post_self_attn_layernorm", post_mlp_norm="post_mlp_layernorm"
)
_EPS = 0.00000015625


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return (sizes.layer(qkv_bias=_bias(file)),) * sizes.n_layers


def _layers_0414(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return (sizes.layer(qkv_bias=_bias(file), post_norms=True),) * sizes.n_layers


def _bias(file: JsonObject) -> bool:
    return file.boolean("attention_bias", default=True)


GLM = Family(
    architecture="GlmForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=131_072,
    n_kv_heads=2,
    head_dim=128,
    norm_eps=_EPS,
    rope=RopeDefaults(partial=0.5),
)
GLM4 = Family(
    architecture="Glm4ForCausalLM",
    layers=_layers_0414,
    sources=_SANDWICH.sources,
    max_positions=131_072,
    n_kv_heads=2,
    head_dim=128,
    norm_eps=_EPS,
    rope=RopeDefaults(partial=0.5),
)
