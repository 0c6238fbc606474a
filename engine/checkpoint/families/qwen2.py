"""Qwen 2: Llama with biases of q, k and v, and a sliding window in some layers."""

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import qwen_windows


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    windows = qwen_windows(file, sizes.n_layers)
    return tuple(sizes.layer(window=window, qkv_bias=True) for window in windows)


FAMILY = Family(
    architecture="Qwen2ForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=32,
)
