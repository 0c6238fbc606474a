"""EXAONE 4: norms behind attention and feed-forward instead of before them; where some layers
slide, the others have no position embedding.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig, QkNorm
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import patterned_windows, sliding_window

POST_NORM_NAMES = replace(
    LLAMA_NAMES,
    post_attention_norm="post_attention_layernorm",
    post_mlp_norm="post_feedforward_layernorm",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    windows = patterned_windows(
        file, sizes.n_layers, full_every=4, pattern_key="sliding_window_pattern"
    )
    has_windows = bool(sliding_window(file))
    return tuple(
        sizes.layer(
            window=window,
            rope=0 if window or not has_windows else None,
            qk_norm=QkNorm(),
            pre_norms=False,
            post_norms=True,
        )
        for window in windows
    )


FAMILY = Family(
    architecture="Exaone4ForCausalLM",
    layers=_layers,
    sources=POST_NORM_NAMES.sources,
    max_positions=2048,
    n_kv_heads=32,
    norm_eps=1e-5,
)
