"""Sliding windows in config.json: which families have one, and in which layers."""

from collections.abc import Sequence

from ...files import JsonObject
from ..limits import MAX_CONTEXT, MAX_LAYERS

_DEFAULT_WINDOW = 4096
_DEFAULT_WINDOW_LAYERS = 28


def sliding_window(file: JsonObject, *, default: int = _DEFAULT_WINDOW) -> int:
    """Keys that a query sees; 0: all. null means full attention; `default`: of a missing key."""
    if "sliding_window" in file.values and not file.has("sliding_window"):
        return 0
    if not file.has("sliding_window") and not default:
        return 0
    return file.integer("sliding_window", low=1, high=MAX_CONTEXT, default=default)


def qwen_window(file: JsonObject) -> int:
    """As `sliding_window`, but only where `use_sliding_window` says so."""
    return sliding_window(file) if file.boolean("use_sliding_window", default=False) else 0


def qwen_windows(file: JsonObject, n_layers: int) -> list[int]:
    """Per layer: `layer_types` where given, else the layers from `max_window_layers` on slide."""
    window = qwen_window(file)
    if not window:
        return [0] * n_layers
    if file.has("layer_types"):
        return typed_windows(file, n_layers, window)
    first = max_window_layers(file)
    return [window if index >= first else 0 for index in range(n_layers)]


def max_window_layers(file: JsonObject) -> int:
    """The layer at which Qwen's pattern of windows changes."""
    return file.integer("max_window_layers", low=0, high=MAX_LAYERS, default=_DEFAULT_WINDOW_LAYERS)


def patterned_windows(
    file: JsonObject,
    n_layers: int,
    *,
    full_every: int,
    pattern_key: str = "",
    default_window: int = _DEFAULT_WINDOW,
) -> list[int]:
    """Per layer: `layer_types` where given, else all but every `full_every`-th slide; `pattern_key`
    may give another number.
    """
    window = sliding_window(file, default=default_window)
    if not window:
        return [0] * n_layers
    if file.has("layer_types"):
        return typed_windows(file, n_layers, window)
    if pattern_key:
        full_every = file.integer(pattern_key, low=1, high=MAX_LAYERS, default=full_every)
    return [window if (index + 1) % full_every else 0 for index in range(n_layers)]


def typed_windows(file: JsonObject, n_layers: int, window: int) -> list[int]:
    """Per layer, as `layer_types` says."""
    kinds = file.strings("layer_types")
    allowed = {"full_attention": 0, "sliding_attention": window}
    if len(kinds) != n_layers or not allowed.keys() >= set(kinds):
        file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(allowed)}")
    return [allowed[kind] for kind in kinds]


def shared_sources(windows: Sequence[int], n_shared: int) -> list[int | None] | None:
    """Per layer, the one whose keys and values it reads, if it has none: the last layers read those
    of the last layer before them that slides as they do. None: there is no such layer.
    """
    n_own = len(windows) - n_shared
    last = {bool(window): index for index, window in enumerate(windows[:n_own])}
    if {bool(window) for window in windows} - last.keys():
        return None
    return [None] * n_own + [last[bool(window)] for window in windows[n_own:]]
