"""Mistral: Llama with a sliding window in every layer."""

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import sliding_window


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return (sizes.layer(window=sliding_window(file)),) * sizes.n_layers


FAMILY = Family(
    architecture="MistralForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=131_072,
    n_kv_heads=8,
)
