"""Apertus: Llama with norms of queries and keys, and a feed-forward part without a gate whose
activation has numbers that each layer learns.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig, QkNorm
from ..rope_keys import RopeDefaults, rope_config
from ..ropes import RopeConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES

_NAMES = replace(
    LLAMA_NAMES,
    gate_up=("mlp.up_proj",),
    attention_norm="attention_layernorm",
    mlp_norm="feedforward_layernorm",
    xielu=("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n", "mlp.act_fn.beta", "mlp.act_fn.eps"),
)
_DEFAULT_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    layer = sizes.layer(qkv_bias=bias, o_bias=bias, qk_norm=QkNorm(), gated=False)
    return (layer,) * sizes.n_layers


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    if not any(file.has(key) for key in ("rope_parameters", "rope_scaling", "rope_theta")):
        file = file.changed({"rope_parameters": _DEFAULT_ROPE})
    return (rope_config(file, head_dim, max_positions, defaults),)


FAMILY = Family(
    architecture="ApertusForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=65_536,
    sizes={"intermediate_size": 14_336},
    norm_eps=1e-5,
    activation="xielu",
    gated=False,
    rope=RopeDefaults(theta=12e6),
    ropes=_ropes,
)
