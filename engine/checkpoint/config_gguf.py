"""The metadata of a GGUF file -> ModelConfig.

Owns the keys that the architectures share; `rope_gguf.py` has those of the position embedding. A
value that would make the output silently wrong is refused here. What the file does not say, its
tensors do: whether there are biases, and how many rows the vocabulary has.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelLoadError
from ..files import shown_name
from ..gguf.container import GgufFile
from ..gguf.metadata import Metadata
from ..stored_tensor import StoredTensor
from .architecture_keys import ArchitectureKeys
from .config import AttentionConfig, LayerConfig, MlpConfig, ModelConfig
from .families.architecture import EMBEDDING, HEAD, ROPE_DIVISORS, Architecture
from .families.known import ARCHITECTURES
from .limits import MAX_CONTEXT, MAX_HEADS, MAX_VOCAB, MAX_WIDTH
from .rope_gguf import rope_config
from .rope_keys import longest_context
from .stored import plain_values

_TOKENS = "tokenizer.ggml.tokens"
_BOS = "tokenizer.ggml.bos_token_id"
# Another value would change what is computed; with this one a key says nothing.
_NEUTRAL: Mapping[str, Any] = {
    "expert_count": 0,
    "attention.causal": True,
    "attention.scale": 0.0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
}


def gguf_config(file: GgufFile) -> ModelConfig:
    """Raises ModelLoadError: file, key, value and what is allowed."""
    metadata, tensors = file.metadata, file.tensors
    architecture = _architecture(metadata)
    keys = ArchitectureKeys(metadata, architecture.name)
    _refuse_unsupported(keys)
    dim = keys.integer("embedding_length", low=1, high=MAX_WIDTH)
    context = keys.integer("context_length", low=1, high=MAX_CONTEXT)
    head_dim = _head_dim(keys, dim)
    rope = rope_config(keys, head_dim, context, _rope_divisors(tensors, head_dim // 2))
    vocab_size = _vocab_size(metadata, tensors)
    return ModelConfig(
        architecture=architecture.name,
        dim=dim,
        vocab_size=vocab_size,
        norm_eps=keys.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0),
        ropes=(rope,),
        layers=_layers(keys, architecture, head_dim, tensors),
        tie_embeddings=HEAD not in tensors,
        max_seq_len=longest_context(rope, context),
        eos_token_ids=(),  # the tokenizer knows them
        bos_token_id=(
            metadata.integer(_BOS, low=0, high=vocab_size - 1) if metadata.has(_BOS) else None
        ),
    )


def _architecture(metadata: Metadata) -> Architecture:
    kind = metadata.string("general.type", default="model")
    if kind != "model":
        metadata.fail("general.type", kind, "'model': this file belongs to a model, but is none")
    name = metadata.string("general.architecture")
    if name not in ARCHITECTURES:
        raise ModelLoadError(
            f"{metadata.where}: general.architecture: {shown_name(name)} is not supported; allowed "
            f"are {', '.join(ARCHITECTURES)}; choose a model of one of these"
        )
    return ARCHITECTURES[name]


def _refuse_unsupported(keys: ArchitectureKeys) -> None:
    for key, neutral in _NEUTRAL.items():
        value = keys.get(key, neutral)
        if value != neutral:
            keys.fail(key, value, f"{neutral}: nothing else is computed")


def _head_dim(keys: ArchitectureKeys, dim: int) -> int:
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


def _layers(
    keys: ArchitectureKeys,
    architecture: Architecture,
    head_dim: int,
    tensors: Mapping[str, StoredTensor],
) -> tuple[LayerConfig, ...]:
    all_heads = keys.of_layers("attention.head_count", high=MAX_HEADS)
    all_kv_heads = keys.of_layers("attention.head_count_kv", high=MAX_HEADS, default=all_heads)
    if len(set(all_kv_heads)) > 1:
        keys.fail("attention.head_count_kv", all_kv_heads, "the same number in all layers")
    for n_heads in all_heads:
        if n_heads % all_kv_heads[0]:
            allowed = f"a divisor of the {n_heads} attention heads"
            keys.fail("attention.head_count_kv", all_kv_heads[0], allowed)
    hidden_dims = keys.of_layers("feed_forward_length", high=MAX_WIDTH)
    layers = []
    for index, window in enumerate(_windows(keys)):
        prefix = f"blk.{index}."
        attention = AttentionConfig(
            n_heads=all_heads[index],
            n_kv_heads=all_kv_heads[index],
            head_dim=head_dim,
            window=window,
            qkv_bias=architecture.qkv_bias or f"{prefix}attn_q.bias" in tensors,
            o_bias=f"{prefix}attn_output.bias" in tensors,
            qk_norm=architecture.qk_norm,
        )
        mlp = MlpConfig(hidden_dims[index], bias=f"{prefix}ffn_down.bias" in tensors)
        layers.append(LayerConfig(attention, mlp))
    return tuple(layers)


def _windows(keys: ArchitectureKeys) -> list[int]:
    """Of each layer: all slide, or those that a pattern names."""
    pattern_key = "attention.sliding_window_pattern"
    window = keys.integer("attention.sliding_window", low=0, high=MAX_CONTEXT, default=0)
    pattern = keys.get(pattern_key, None)
    if not window or pattern is None:
        return [window] * keys.n_layers
    is_known = isinstance(pattern, np.ndarray) and pattern.dtype == np.bool_
    if not is_known or len(pattern) != keys.n_layers:
        keys.fail(pattern_key, pattern, f"an array of {keys.n_layers} bools")
    return [window if slides else 0 for slides in pattern.tolist()]


def _rope_divisors(tensors: Mapping[str, StoredTensor], count: int) -> tuple[float, ...] | None:
    """What each frequency is divided by, if the file says so: llama3's scaling, worked out."""
    tensor = tensors.get(ROPE_DIVISORS)
    if tensor is None:
        return None
    if tensor.shape != (count,) or tensor.dtype != "F32":
        raise ModelLoadError(
            f"{tensor.file}: {ROPE_DIVISORS}: is {tensor.dtype} of shape {list(tensor.shape)}; "
            f"the heads need F32 of [{count}]"
        )
    divisors = plain_values(tensor)
    bad = np.flatnonzero(~(np.isfinite(divisors) & (divisors > 0)))
    if bad.size:
        raise ModelLoadError(
            f"{tensor.file}: {ROPE_DIVISORS}: {divisors[bad[0]]} at {bad[0]}; must be more than 0"
        )
    return tuple(divisors.tolist())


def _vocab_size(metadata: Metadata, tensors: Mapping[str, StoredTensor]) -> int:
    """The rows of the embedding. There may be more of them than tokens, as padding."""
    tensor = tensors.get(EMBEDDING)
    if tensor is None or len(tensor.shape) != 2:
        found = "missing" if tensor is None else f"has shape {list(tensor.shape)}"
        raise ModelLoadError(f"{metadata.where}: {EMBEDDING}: {found}; a model has such a matrix")
    n_rows = tensor.shape[0]
    if n_rows > MAX_VOCAB:
        raise ModelLoadError(f"{tensor.file}: {EMBEDDING}: has {n_rows} rows; at most {MAX_VOCAB}")
    n_tokens = len(metadata.strings(_TOKENS, default=[]))
    if n_tokens > n_rows:
        metadata.fail(_TOKENS, f"{n_tokens} tokens", f"at most {n_rows}, the rows of {EMBEDDING}")
    return n_rows
