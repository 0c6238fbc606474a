"""Sliding windows in config.json: which families have one, and in which layers."""

from ...files import JsonObject
from ..limits import MAX_CONTEXT, MAX_LAYERS

_DEFAULT_WINDOW = 4096
_DEFAULT_FIRST_LAYER = 28


def sliding_window(file: JsonObject) -> int:
    """Keys that a query sees; 0: all. null means full attention, a missing key means 4096."""
    if "sliding_window" in file.values and not file.has("sliding_window"):
        return 0
    return file.integer("sliding_window", low=1, high=MAX_CONTEXT, default=_DEFAULT_WINDOW)


def qwen_windows(file: JsonObject, n_layers: int) -> list[int]:
    """Per layer: `layer_types` where given, else the layers from `max_window_layers` on slide."""
    if not file.boolean("use_sliding_window", default=False):
        return [0] * n_layers
    window = sliding_window(file)
    if not window:
        return [0] * n_layers
    if not file.has("layer_types"):
        first = file.integer(
            "max_window_layers", low=0, high=MAX_LAYERS, default=_DEFAULT_FIRST_LAYER
        )
        return [window if index >= first else 0 for index in range(n_layers)]
    kinds = file.strings("layer_types")
    allowed = {"full_attention": 0, "sliding_attention": window}
    if len(kinds) != n_layers or not allowed.keys() >= set(kinds):
        file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(allowed)}")
    return [allowed[kind] for kind in kinds]
