"""Granite: Llama with multipliers of embedding, attention, residual and logits."""

from ...files import JsonObject
from ..config import Ends, LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES

_HIGHEST = 1e6


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    layer = sizes.layer(
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=file.boolean("mlp_bias", default=False),
        scale=_multiplier(file, "attention_multiplier"),
        residual_scale=_multiplier(file, "residual_multiplier"),
    )
    return (layer,) * sizes.n_layers


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(
        embedding_scale=_multiplier(file, "embedding_multiplier"),
        logit_scale=1.0 / file.number("logits_scaling", low=1e-6, high=_HIGHEST, default=1.0),
    )


def _multiplier(file: JsonObject, key: str) -> float:
    return file.number(key, low=0.0, high=_HIGHEST, default=1.0)


FAMILY = Family(
    architecture="GraniteForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=2048,
    ends=_ends,
    reads=frozenset(
        {"attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"}
    ),
)
