"""Qwen 3: Qwen 2 with a norm per query and key head, and biases only where config.json says so."""

from ...files import JsonObject
from ..config import LayerConfig, QkNorm
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import qwen_windows


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    return tuple(
        sizes.layer(window=window, qkv_bias=bias, o_bias=bias, qk_norm=QkNorm())
        for window in qwen_windows(file, sizes.n_layers)
    )


FAMILY = Family(
    architecture="Qwen3ForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=32,
    head_dim=128,
)
