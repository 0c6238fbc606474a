"""Cohere (Command R) and Cohere 2: parallel blocks with one LayerNorm without bias, rope pairs that
stand next to each other, scaled logits. In Cohere 2 most layers slide; the others have no rope.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import Ends, LayerConfig, QkNorm
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import patterned_windows

_NAMES = replace(LLAMA_NAMES, mlp_norm="", rope_pairs=True)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    has_norm = file.boolean("use_qk_norm", default=False)
    norm = QkNorm(over="heads", centered=True) if has_norm else None
    layer = sizes.layer(qkv_bias=bias, o_bias=bias, qk_norm=norm, parallel=True)
    return (layer,) * sizes.n_layers


def _layers_2(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    windows = patterned_windows(
        file, sizes.n_layers, full_every=4, pattern_key="sliding_window_pattern"
    )
    return tuple(
        sizes.layer(
            window=window,
            rope=0 if window else None,
            qkv_bias=bias,
            o_bias=bias,
            parallel=True,
        )
        for window in windows
    )


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(logit_scale=file.number("logit_scale", low=0.0, high=1e6, default=0.0625))


COHERE = Family(
    architecture="CohereForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=8192,
    norm_eps=1e-5,
    eps_key="layer_norm_eps",
    centered_norms=True,
    tied=True,
    rope=RopeDefaults(theta=500_000.0),
    ends=_ends,
    reads=frozenset({"logit_scale", "use_qk_norm"}),
)
COHERE2 = Family(
    architecture="Cohere2ForCausalLM",
    layers=_layers_2,
    sources=_NAMES.sources,
    max_positions=8192,
    norm_eps=1e-5,
    eps_key="layer_norm_eps",
    centered_norms=True,
    tied=True,
    ends=_ends,
    reads=frozenset({"logit_scale"}),
)
