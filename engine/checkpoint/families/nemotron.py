"""Nemotron, dense: LayerNorm whose weights are stored minus one, heads that are rotated in part,
and a feed-forward part without a gate.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    layer = sizes.layer(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, gated=False)
    return (layer,) * sizes.n_layers


FAMILY = Family(
    architecture="NemotronForCausalLM",
    layers=_layers,
    sources=replace(LLAMA_NAMES, gate_up=("mlp.up_proj",), norms_plus=1.0).sources,
    max_positions=4096,
    norm_eps=1e-5,
    eps_key="norm_eps",
    centered_norms=True,
    norm_bias=True,
    activation="relu2",
    gated=False,
    rope=RopeDefaults(partial=0.5),
)
