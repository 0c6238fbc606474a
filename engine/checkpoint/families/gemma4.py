"""Gemma 4 (text, dense): Gemma 3 with wider heads in full layers, normed values, unscaled products,
and a factor of each layer. Full layers may project keys and values by one matrix; the last layers
may read those of earlier ones.
"""

import math
from dataclasses import replace
from typing import Any

from ...files import JsonObject
from ..config import AttentionConfig, Ends, LayerConfig, MlpConfig, QkNorm, RopeConfig
from ..limits import MAX_WIDTH
from ..rope_keys import RopeDefaults, two_ropes
from .family import Family, Sizes
from .gemma import NAMES as GEMMA_NAMES
from .windows import patterned_windows

_FULL_HEAD_DIM = 512
_GLOBAL_KEYS = ("num_global_key_value_heads", "global_head_dim")
_SLIDING_THETA = 10_000.0
_ROPES: dict[str, Any] = {
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1_000_000.0,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": _SLIDING_THETA},
}
NAMES = replace(GEMMA_NAMES, norms_plus=0.0)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    _refuse_unknown(file)
    n_layers = sizes.n_layers
    *windows, _ = patterned_windows(file, n_layers, full_every=6, default_window=512)
    windows.append(0)  # The last layer sees all, whatever the file says: as in transformers.
    n_shared = file.integer("num_kv_shared_layers", low=0, high=n_layers - 1, default=0)
    sources = _sources(file, windows, n_layers - n_shared)
    is_double = file.boolean("use_double_wide_mlp", default=False)
    return tuple(
        _layer(file, sizes, index, window, source, is_wide=is_double and source is not None)
        for index, (window, source) in enumerate(zip(windows, sources, strict=True))
    )


def _refuse_unknown(file: JsonObject) -> None:
    if file.boolean("enable_moe_block", default=False):
        file.fail("enable_moe_block", True, "false: experts are not supported here")
    # A missing key means that there are some.
    key = "hidden_size_per_layer_input"
    if width := file.integer(key, low=0, high=MAX_WIDTH, default=256):
        file.fail(key, width, "0: embeddings of each layer (E2B, E4B) are not supported")
    if file.values.get("use_bidirectional_attention") == "all":
        file.fail("use_bidirectional_attention", "all", "null or 'vision'")


def _sources(file: JsonObject, windows: list[int], n_own: int) -> list[int | None]:
    """Per layer, the one whose keys and values it reads: the last of its kind that has its own."""
    last = {bool(window): index for index, window in enumerate(windows[:n_own])}
    if {bool(window) for window in windows} - last.keys():
        allowed = "fewer, so that there is a layer of each kind with keys and values of its own"
        file.fail("num_kv_shared_layers", len(windows) - n_own, allowed)
    return [None] * n_own + [last[bool(window)] for window in windows[n_own:]]


def _layer(
    file: JsonObject,
    sizes: Sizes,
    index: int,
    window: int,
    source: int | None,
    *,
    is_wide: bool,
) -> LayerConfig:
    n_kv_heads, head_dim = _heads(file, sizes, index, is_full=not window)
    bias = file.boolean("attention_bias", default=False)
    attention = AttentionConfig(
        n_heads=sizes.n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        window=window,
        rope=1 if window else 0,
        qkv_bias=bias,
        o_bias=bias,
        qk_norm=QkNorm(),
        scale=1.0,
        v_norm=True,
        v_is_k=not window and _shares_projection(file),
        kv_from=source,
    )
    hidden_dim = sizes.hidden_dim * (2 if is_wide else 1)
    mlp = MlpConfig(hidden_dim, activation=sizes.activation)
    return LayerConfig(attention, mlp, post_norms=True, has_factor=True)


def _shares_projection(file: JsonObject) -> bool:
    return file.boolean("attention_k_eq_v", default=False)


def _heads(file: JsonObject, sizes: Sizes, index: int, *, is_full: bool) -> tuple[int, int]:
    """(n_kv_heads, head_dim) of a layer, in the words of both versions of the format."""
    n_kv_heads, head_dim = sizes.n_kv_heads, sizes.head_dim
    if file.has("per_layer_config"):
        layers = file.nested("per_layer_config")
        holder = layers.nested(str(index)) if layers.has(str(index)) else JsonObject({}, file.where)
        keys = ("num_key_value_heads", "head_dim")
    elif is_full:
        holder, keys, head_dim = file, _GLOBAL_KEYS, _FULL_HEAD_DIM
        if not _shares_projection(file):
            holder = JsonObject({**file.values, keys[0]: None}, file.where)
    else:
        return n_kv_heads, head_dim
    n_kv_heads = holder.integer(keys[0], low=1, high=sizes.n_heads, default=n_kv_heads)
    if sizes.n_heads % n_kv_heads:
        holder.fail(keys[0], n_kv_heads, f"a divisor of the {sizes.n_heads} attention heads")
    head_dim = holder.integer(keys[1], low=2, high=MAX_WIDTH, default=head_dim)
    if head_dim % 2:
        holder.fail(keys[1], head_dim, "an even number")
    return n_kv_heads, head_dim


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    if not file.has("rope_parameters"):
        file = JsonObject({**file.values, "rope_parameters": _ROPES}, file.where)
    return two_ropes(
        file,
        head_dim,
        max_positions,
        defaults,
        sliding_theta=_SLIDING_THETA,
        full_head_dim=_full_head_dim(file, head_dim),
    )


def _full_head_dim(file: JsonObject, head_dim: int) -> int:
    """Of the last layer, which is a full one."""
    if not file.has("per_layer_config"):
        return file.integer("global_head_dim", low=2, high=MAX_WIDTH, default=_FULL_HEAD_DIM)
    layers = file.nested("per_layer_config")
    last = str(file.integer("num_hidden_layers", low=1, high=MAX_WIDTH) - 1)
    if not layers.has(last):
        return head_dim
    return layers.nested(last).integer("head_dim", low=2, high=MAX_WIDTH, default=head_dim)


def _ends(file: JsonObject, dim: int) -> Ends:
    cap = file.number("final_logit_softcapping", low=0.0, high=1e6, default=0.0)
    return Ends(embedding_scale=math.sqrt(dim), logit_softcap=cap)


FAMILY = Family(
    architecture="Gemma4ForCausalLM",
    layers=_layers,
    sources=NAMES.sources,
    max_positions=131_072,
    n_kv_heads=4,
    head_dim=256,
    activation_key="hidden_activation",
    activation="gelu_pytorch_tanh",
    tied=True,
    rope=RopeDefaults(theta=1_000_000.0),
    ropes=_ropes,
    ends=_ends,
    reads=frozenset(
        {
            "final_logit_softcapping",
            "num_kv_shared_layers",
            "hidden_size_per_layer_input",
            "use_bidirectional_attention",
        }
    ),
)
