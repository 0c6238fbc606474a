"""The layers of a GGUF file, from its metadata, its tensors and its architecture.

Owns the keys of heads and windows; `experts_gguf.py` has those of feed-forward parts.
Knows nothing outside the layers.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..stored_tensor import StoredTensor
from .architecture_keys import ArchitectureKeys
from .config import NO_ATTENTION, AttentionConfig, LayerConfig, QueryScaling
from .experts_gguf import mlps_of
from .families.architecture import Architecture
from .families.layer_parts import parallel_mixers, shared_apart
from .families.windows import shared_sources
from .limits import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from .recurrent_gguf import mamba2_of, recurrent_of

_HIGHEST = 1e6
Tensors = Mapping[str, StoredTensor]


def head_dim_of(keys: ArchitectureKeys, dim: int) -> int:
    """The width of a head, the same in all layers. Raises ModelLoadError."""
    n_heads = keys.of_layers("attention.head_count", high=MAX_HEADS)[0]
    if not keys.has("attention.key_length") and dim % n_heads:
        keys.fail("attention.head_count", n_heads, f"a divisor of embedding_length {dim}")
    head_dim = keys.integer("attention.key_length", low=2, high=MAX_WIDTH, default=dim // n_heads)
    if head_dim % 2:
        keys.fail("attention.key_length", head_dim, "an even number")
    of_values = keys.integer("attention.value_length", low=1, high=MAX_WIDTH, default=head_dim)
    if of_values != head_dim:
        keys.fail("attention.value_length", of_values, f"{head_dim}, as wide as keys")
    return head_dim


def sliding_head_dim_of(keys: ArchitectureKeys, head_dim: int) -> int:
    """The width of a head in layers that slide; `head_dim`: in others. Raises ModelLoadError."""
    key, of_values = "attention.key_length_swa", "attention.value_length_swa"
    found = keys.integer(key, low=2, high=MAX_WIDTH, default=head_dim)
    if found % 2:
        keys.fail(key, found, "an even number")
    if (width := keys.integer(of_values, low=1, high=MAX_WIDTH, default=found)) != found:
        keys.fail(of_values, width, f"{found}, as wide as keys")
    return found


def layer_embedding_width(keys: ArchitectureKeys) -> int:
    """Of the embedding that each layer adds; 0: there is none. Raises ModelLoadError."""
    return keys.integer("embedding_length_per_layer_input", low=0, high=MAX_WIDTH, default=0)


def layers_of(
    keys: ArchitectureKeys, architecture: Architecture, dim: int, head_dim: int, tensors: Tensors
) -> tuple[LayerConfig, ...]:
    """All layers in order. Raises ModelLoadError."""
    mlps = mlps_of(keys, architecture, tensors)
    kv_heads = _kv_heads(keys, architecture)
    is_free = [not heads for heads in kv_heads]
    if architecture.parts == "one":
        is_free = [free and not mlp.exists for free, mlp in zip(is_free, mlps, strict=True)]
    recurrent = recurrent_of(keys, architecture, dim, is_free, tensors)
    attentions = _attentions(keys, architecture, dim, head_dim, tensors)
    residual_scale = keys.number("residual_scale", low=0.0, high=_HIGHEST, default=1.0) or 1.0
    is_parallel = _is_parallel(keys, architecture, tensors)
    layers = tuple(
        LayerConfig(
            attention if kv_heads[index] and recurrent[index] is None else NO_ATTENTION,
            mlps[index],
            pre_norms=architecture.pre_norms,
            post_norms=architecture.post_norms,
            parallel=is_parallel,
            two_norms=bool(architecture.second_norm)
            and f"blk.{index}.{architecture.second_norm}.weight" in tensors,
            residual_scale=residual_scale,
            has_factor=f"blk.{index}.{architecture.names.factor}" in tensors,
            embedding_dim=layer_embedding_width(keys),
            recurrent=recurrent[index],
        )
        for index, attention in enumerate(attentions)
    )
    if architecture.parts == "both mixers":
        mamba = mamba2_of(keys, architecture, tensors)
        return tuple(part for layer in layers for part in parallel_mixers(layer, mamba))
    return tuple(part for layer in layers for part in shared_apart(layer))


def _kv_heads(keys: ArchitectureKeys, architecture: Architecture) -> Sequence[int]:
    """Of each layer; 0 where something else stands in the place of attention."""
    is_said = architecture.recurrent in ("short_conv", "mamba2")
    key, low = "attention.head_count_kv", 0 if is_said else 1
    heads = keys.of_layers("attention.head_count", high=MAX_HEADS)
    return keys.of_layers(key, high=MAX_HEADS, low=low, default=heads)


def _is_parallel(keys: ArchitectureKeys, architecture: Architecture, tensors: Tensors) -> bool:
    if architecture.parallel is not None:
        return architecture.parallel
    one_norm = f"blk.0.{architecture.names.mlp_norm}.weight" not in tensors
    return bool(keys.get("use_parallel_residual", one_norm))


def _attentions(
    keys: ArchitectureKeys, architecture: Architecture, dim: int, head_dim: int, tensors: Tensors
) -> list[AttentionConfig]:
    all_heads = keys.of_layers("attention.head_count", high=MAX_HEADS)
    of_layers = _kv_heads(keys, architecture)
    if not max(of_layers):
        keys.fail("attention.head_count_kv", of_layers, "a positive number in some layer")
    all_kv_heads = [heads or max(of_layers) for heads in of_layers]
    for n_heads, n_kv_heads in zip(all_heads, all_kv_heads, strict=True):
        if n_heads % n_kv_heads:
            allowed = f"a divisor of the {n_heads} attention heads"
            keys.fail("attention.head_count_kv", n_kv_heads, allowed)
    windows = _windows(keys, architecture)
    sources = _sources(keys, windows)
    sliding_head_dim = sliding_head_dim_of(keys, head_dim)
    return [
        AttentionConfig(
            n_heads=all_heads[index],
            n_kv_heads=all_kv_heads[index],
            head_dim=sliding_head_dim if window else head_dim,
            window=window,
            rope=_rope(keys, architecture, index, windows),
            qkv_bias=architecture.qkv_bias or _has_any(tensors, index, "attn_q", "attn_qkv"),
            o_bias=_has_any(tensors, index, "attn_output"),
            qk_norm=architecture.qk_norm if _has_norm(architecture, tensors, index) else None,
            scale=_scale(keys, architecture, dim, all_heads[index]),
            softcap=keys.number("attn_logit_softcapping", low=0.0, high=_HIGHEST, default=0.0),
            query_scaling=_query_scaling(keys),
            sinks=architecture.sinks,
            v_norm=architecture.v_norm,
            v_is_k=architecture.v_norm and f"blk.{index}.attn_v.weight" not in tensors,
            kv_from=sources[index],
            output_gate=architecture.output_gate,
        )
        for index, window in enumerate(windows)
    ]


def _has_any(tensors: Tensors, index: int, *names: str) -> bool:
    return any(f"blk.{index}.{name}.bias" in tensors for name in names)


def _has_norm(architecture: Architecture, tensors: Tensors, index: int) -> bool:
    stored = f"blk.{index}.{architecture.names.q_norm}.weight" in tensors
    return stored or not architecture.has_qk_norm_if_stored


def _windows(keys: ArchitectureKeys, architecture: Architecture) -> list[int]:
    """Of each layer: a pattern names those that slide, or the architecture does."""
    pattern_key = "attention.sliding_window_pattern"
    window = keys.integer("attention.sliding_window", low=0, high=MAX_CONTEXT, default=0)
    pattern = keys.get(pattern_key, None)
    if not window:
        return [0] * keys.n_layers
    if isinstance(pattern, np.ndarray):
        if pattern.dtype != np.bool_ or len(pattern) != keys.n_layers:
            keys.fail(pattern_key, pattern, f"an array of {keys.n_layers} bools")
        return [window if slides else 0 for slides in pattern.tolist()]
    every = keys.integer(pattern_key, low=0, high=MAX_LAYERS, default=architecture.full_every)
    if not every:
        return [window] * keys.n_layers
    return [window if (index + 1) % every else 0 for index in range(keys.n_layers)]


def _sources(keys: ArchitectureKeys, windows: list[int]) -> list[int | None]:
    """Of each layer: the one whose keys and values it reads, if it has none."""
    key = "attention.shared_kv_layers"
    n_shared = keys.integer(key, low=0, high=keys.n_layers - 1, default=0)
    sources = shared_sources(windows, n_shared)
    if sources is None:
        keys.fail(key, n_shared, "fewer: a layer of each kind has keys and values of its own")
    return sources


def _rope(
    keys: ArchitectureKeys, architecture: Architecture, index: int, windows: list[int]
) -> int | None:
    """Which of the model's position embeddings a layer has."""
    every, window = architecture.rope_every, windows[index]
    if architecture.rope_if_finetuned and not keys.get("rope.scaling.finetuned", True):
        return None
    if not architecture.has_rope or (every and not (index + 1) % every):
        return None
    if architecture.only_sliding_ropes and any(windows):
        return 0 if window else None
    return 1 if window and architecture.sliding_theta is not None else 0


def _scale(
    keys: ArchitectureKeys, architecture: Architecture, dim: int, n_heads: int
) -> float | None:
    if keys.n_layers == architecture.widest:
        return float((dim // n_heads) ** -0.5)
    # 0 says nothing.
    stored = keys.number("attention.scale", low=0.0, high=_HIGHEST, default=0.0)
    return stored or architecture.score_scale


def _query_scaling(keys: ArchitectureKeys) -> QueryScaling | None:
    beta = keys.number("attention.temperature_scale", low=0.0, high=_HIGHEST, default=0.0)
    if not beta:
        return None
    key = "rope.scaling.original_context_length"
    return QueryScaling(beta, keys.integer(key, low=1, high=MAX_CONTEXT))
