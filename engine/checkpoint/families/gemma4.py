"""Gemma 4 (text): Gemma 3 with wider heads in full layers, normed values, unscaled products, and a
factor of each layer. Full layers may project keys and values by one matrix; the last layers may
read those of earlier ones. E-models have embeddings of each layer; in the mixtures, experts stand
beside the feed-forward part.
"""

import math
from dataclasses import replace
from typing import Any

from ...files import JsonObject
from ..config import AttentionConfig, Ends, ExpertsConfig, LayerConfig, MlpConfig, QkNorm
from ..limits import MAX_VOCAB, MAX_WIDTH
from ..rope_keys import RopeDefaults, two_ropes
from ..ropes import RopeConfig
from .expert_keys import experts_of
from .expert_names import ExpertNames
from .family import Family, Sizes
from .gemma import NAMES as GEMMA_NAMES
from .layer_embeddings import gemma_layer_embeddings
from .windows import patterned_windows, shared_sources

_FULL_HEAD_DIM = 512
_VOCAB_SIZE = 262_144
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
_WIDTH_KEY = "hidden_size_per_layer_input"
NAMES = replace(
    GEMMA_NAMES,
    norms_plus=0.0,
    experts=ExpertNames(
        router="router.proj",
        gate_up=("experts.gate_up_proj",),
        down="experts.down_proj",
        weight="",
        shared_gate_up=GEMMA_NAMES.gate_up,
        shared_down=GEMMA_NAMES.down,
        expert_scales="router.per_expert_scale",
        router_norm="router.scale",
        norm="pre_feedforward_layernorm_2.weight",
        post_norm="post_feedforward_layernorm_2.weight",
        post_shared_norm="post_feedforward_layernorm_1.weight",
    ),
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    _refuse_unknown(file)
    n_layers = sizes.n_layers
    *windows, _ = patterned_windows(file, n_layers, full_every=6, default_window=512)
    windows.append(0)  # The last layer sees all, whatever the file says: as in transformers.
    n_shared = file.integer("num_kv_shared_layers", low=0, high=n_layers - 1, default=0)
    sources = shared_sources(windows, n_shared)
    if sources is None:
        allowed = "fewer, so that there is a layer of each kind with keys and values of its own"
        file.fail("num_kv_shared_layers", n_shared, allowed)
    is_double = file.boolean("use_double_wide_mlp", default=False)
    return tuple(
        _layer(file, sizes, index, window, source, is_wide=is_double and source is not None)
        for index, (window, source) in enumerate(zip(windows, sources, strict=True))
    )


def _unified(file: JsonObject) -> JsonObject:
    """What a file of Gemma 4 Unified would say as one of Gemma 4."""
    own = {_WIDTH_KEY: 0, "enable_moe_block": False}
    if "sliding_window" not in file.values:
        own["sliding_window"] = 1024
    return file.changed(own)


def _refuse_unknown(file: JsonObject) -> None:
    if file.values.get("use_bidirectional_attention") == "all":
        file.fail("use_bidirectional_attention", "all", "null or 'vision'")
    if not _embedding_width(file):
        return
    n_rows, key = (
        file.integer("vocab_size", low=1, high=MAX_VOCAB, default=_VOCAB_SIZE),
        "vocab_size_per_layer_input",
    )
    n_own = file.integer(key, low=1, high=MAX_VOCAB, default=_VOCAB_SIZE)
    if n_own != n_rows:
        file.fail(key, n_own, f"{n_rows}, as many as vocab_size")
    if file.string("hidden_activation", default="gelu") in ("silu", "swish"):
        name = file.string("hidden_activation")
        file.fail("hidden_activation", name, f"another one beside {_WIDTH_KEY}")


def _embedding_width(file: JsonObject) -> int:
    """Of the embedding of a layer; 0: there is none. A missing key means that there is one."""
    return file.integer(_WIDTH_KEY, low=0, high=MAX_WIDTH, default=256)


def _experts(file: JsonObject, dim: int) -> ExpertsConfig | None:
    if not file.boolean("enable_moe_block", default=False):
        return None
    return experts_of(
        file,
        keys=("num_experts",),
        used_key="top_k_experts",
        renormalized=True,
        own_norms=True,
        router_scale=1.0 / math.sqrt(dim),
        expert_scales=True,
    )


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
    mlp = MlpConfig(hidden_dim, activation=sizes.activation, experts=_experts(file, sizes.dim))
    return LayerConfig(
        attention,
        mlp,
        post_norms=True,
        has_factor=True,
        embedding_dim=_embedding_width(file),
    )


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
            holder = file.changed({keys[0]: None})
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
        file = file.changed({"rope_parameters": _ROPES})
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
    width = _embedding_width(file)
    return Ends(
        embedding_scale=math.sqrt(dim),
        layer_embeddings=gemma_layer_embeddings(width, dim) if width else None,
        logit_softcap=cap,
    )


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
    sizes={"vocab_size": _VOCAB_SIZE},
    rope=RopeDefaults(theta=1_000_000.0),
    ropes=_ropes,
    ends=_ends,
    reads=frozenset(
        {
            "final_logit_softcapping",
            "num_kv_shared_layers",
            "num_experts",
            _WIDTH_KEY,
            "use_bidirectional_attention",
        }
    ),
)
UNIFIED = replace(
    FAMILY,
    architecture="Gemma4UnifiedForCausalLM",
    layers=lambda file, sizes: _layers(_unified(file), sizes),
    ends=lambda file, dim: _ends(_unified(file), dim),
    max_positions=262_144,
    reads=FAMILY.reads - {"num_experts", _WIDTH_KEY},
)
