"""SmolLM 3: Llama without a position embedding in some layers."""

from ...files import JsonObject
from ..config import LayerConfig
from ..limits import MAX_LAYERS
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import sliding_window, typed_windows

_ROPE_INTERVAL = 4


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    ropes = _ropes(file, sizes.n_layers)
    return tuple(
        sizes.layer(window=window, rope=rope, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias)
        for window, rope in zip(_windows(file, ropes), ropes, strict=True)
    )


def _ropes(file: JsonObject, n_layers: int) -> list[int | None]:
    """Of each layer. In `no_rope_layers`, 1 means a layer with rope."""
    if not file.has("no_rope_layers"):
        every = file.integer(
            "no_rope_layer_interval", low=1, high=MAX_LAYERS, default=_ROPE_INTERVAL
        )
        return [0 if (index + 1) % every else None for index in range(n_layers)]
    flags = file.values["no_rope_layers"]
    if not isinstance(flags, list) or len(flags) < n_layers or not {0, 1} >= set(flags):
        file.fail("no_rope_layers", flags, f"a list of {n_layers} numbers, each 0 or 1")
    return [0 if flag else None for flag in flags[:n_layers]]


def _windows(file: JsonObject, ropes: list[int | None]) -> list[int]:
    """Where there are windows, the layers without rope slide."""
    uses_window = file.boolean("use_sliding_window", default=False)
    window = sliding_window(file, default=0) if uses_window else 0
    if window and file.has("layer_types"):
        return typed_windows(file, len(ropes), window)
    return [window if rope is None else 0 for rope in ropes]


FAMILY = Family(
    architecture="SmolLM3ForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=4,
    rope=RopeDefaults(theta=2_000_000.0),
    tied=True,
)
