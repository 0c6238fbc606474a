"""Seed-OSS: Llama with biases of q, k and v, and one of the output by itself."""

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    layer = sizes.layer(
        qkv_bias=file.boolean("attention_bias", default=True),
        o_bias=file.boolean("attention_out_bias", default=False),
        mlp_bias=file.boolean("mlp_bias", default=False),
    )
    return (layer,) * sizes.n_layers


FAMILY = Family(
    architecture="SeedOssForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=524_288,
    n_kv_heads=8,
    head_dim=128,
)
