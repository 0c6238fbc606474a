"""Arcee: Llama with a feed-forward part that has no gate."""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    layer = sizes.layer(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, gated=False)
    return (layer,) * sizes.n_layers


FAMILY = Family(
    architecture="ArceeForCausalLM",
    layers=_layers,
    sources=replace(LLAMA_NAMES, gate_up=("mlp.up_proj",)).sources,
    max_positions=4096,
    norm_eps=1e-5,
    activation="relu2",
    gated=False,
)
