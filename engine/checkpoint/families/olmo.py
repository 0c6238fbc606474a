"""OLMo 2 and OLMo 3: norms behind attention and feed-forward instead of before them, and one norm
over all query heads, another over all key heads; in OLMo 3 most layers slide.
"""

from ...files import JsonObject
from ..config import LayerConfig, QkNorm
from ..rope_keys import RopeDefaults, two_ropes
from ..ropes import RopeConfig
from .exaone4 import POST_NORM_NAMES
from .family import Family, Sizes
from .windows import patterned_windows


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return tuple(_layer(file, sizes, 0) for _ in range(sizes.n_layers))


def _layers_3(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    windows = patterned_windows(file, sizes.n_layers, full_every=4)
    return tuple(_layer(file, sizes, window) for window in windows)


def _layer(file: JsonObject, sizes: Sizes, window: int) -> LayerConfig:
    bias = file.boolean("attention_bias", default=False)
    return sizes.layer(
        window=window,
        rope=1 if window else 0,
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=QkNorm(over="all"),
        pre_norms=False,
        post_norms=True,
    )


def _ropes_3(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    theta = defaults.theta
    return two_ropes(file, head_dim, max_positions, defaults, sliding_theta=theta)


OLMO2 = Family(
    architecture="Olmo2ForCausalLM",
    layers=_layers,
    sources=POST_NORM_NAMES.sources,
    max_positions=2048,
    norm_eps=1e-5,
)
OLMO3 = Family(
    architecture="Olmo3ForCausalLM",
    layers=_layers_3,
    sources=POST_NORM_NAMES.sources,
    max_positions=2048,
    norm_eps=1e-5,
    rope=RopeDefaults(theta=500_000.0),
    ropes=_ropes_3,
)
