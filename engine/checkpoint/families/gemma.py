"""Gemma 2 and Gemma 3 (text): norms on both sides, a scaled embedding, GeGLU, sliding windows;
Gemma 2 caps its scores and logits, Gemma 3 norms queries and keys.
"""

import math
from dataclasses import replace

from ...files import JsonObject
from ..config import Ends, LayerConfig, QkNorm
from ..rope_keys import RopeDefaults, two_ropes
from ..ropes import RopeConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import patterned_windows

_SLIDING_THETA = 10_000.0
_HIGHEST = 1e6
NAMES = replace(
    LLAMA_NAMES,
    post_attention_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    post_mlp_norm="post_feedforward_layernorm",
    norms_plus=1.0,
)
_READS = frozenset({"query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"})


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    windows = patterned_windows(file, sizes.n_layers, full_every=2)
    cap = _softcap(file, "attn_logit_softcapping", default=50.0)
    return tuple(_layer(file, sizes, window, softcap=cap) for window in windows)


def _layers_3(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    windows = patterned_windows(
        file, sizes.n_layers, full_every=6, pattern_key="sliding_window_pattern"
    )
    # transformers does not read it for Gemma 3.
    cap = _softcap(file, "attn_logit_softcapping", default=0.0)
    if cap:
        file.fail("attn_logit_softcapping", cap, "null")
    return tuple(
        _layer(file, sizes, window, qk_norm=QkNorm(), rope=1 if window else 0) for window in windows
    )


def _layer(
    file: JsonObject,
    sizes: Sizes,
    window: int,
    *,
    rope: int = 0,
    softcap: float = 0.0,
    qk_norm: QkNorm | None = None,
) -> LayerConfig:
    bias = file.boolean("attention_bias", default=False)
    scalar = file.number("query_pre_attn_scalar", low=1e-6, high=_HIGHEST, default=256.0)
    return sizes.layer(
        window=window,
        rope=rope,
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=qk_norm,
        scale=scalar**-0.5,
        softcap=softcap,
        post_norms=True,
    )


def _ropes_3(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    return two_ropes(
        file,
        head_dim,
        max_positions,
        defaults,
        sliding_theta_key="rope_local_base_freq",
        sliding_theta=_SLIDING_THETA,
    )


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(
        embedding_scale=math.sqrt(dim),
        logit_softcap=_softcap(file, "final_logit_softcapping", default=30.0),
    )


def _ends_3(file: JsonObject, dim: int) -> Ends:
    return Ends(
        embedding_scale=math.sqrt(dim),
        logit_softcap=_softcap(file, "final_logit_softcapping", default=0.0),
    )


def _softcap(file: JsonObject, key: str, *, default: float) -> float:
    """null means none, a missing key the default."""
    if key in file.values and not file.has(key):
        return 0.0
    return file.number(key, low=0.0, high=_HIGHEST, default=default)


GEMMA2 = Family(
    architecture="Gemma2ForCausalLM",
    layers=_layers,
    sources=NAMES.sources,
    max_positions=8192,
    n_kv_heads=4,
    head_dim=256,
    activation_key="hidden_activation",
    activation="gelu_pytorch_tanh",
    tied=True,
    ends=_ends,
    reads=_READS,
)
GEMMA3 = Family(
    architecture="Gemma3ForCausalLM",
    layers=_layers_3,
    sources=NAMES.sources,
    max_positions=131_072,
    n_kv_heads=4,
    head_dim=256,
    sizes={"num_attention_heads": 8, "vocab_size": 262_208},
    activation_key="hidden_activation",
    activation="gelu_pytorch_tanh",
    tied=True,
    rope=RopeDefaults(theta=1_000_000.0),
    ropes=_ropes_3,
    ends=_ends_3,
    reads=_READS,
)
