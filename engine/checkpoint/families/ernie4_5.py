"""ERNIE 4.5, dense: Llama with rope pairs that stand next to each other."""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("use_bias", default=False)
    return (sizes.layer(qkv_bias=bias, o_bias=bias, mlp_bias=bias),) * sizes.n_layers


FAMILY = Family(
    architecture="Ernie4_5ForCausalLM",
    layers=_layers,
    sources=replace(LLAMA_NAMES, rope_pairs=True).sources,
    max_positions=131_072,
    n_kv_heads=2,
    head_dim=128,
    norm_eps=1e-5,
    rope=RopeDefaults(theta=500_000.0),
    tied=True,
)
