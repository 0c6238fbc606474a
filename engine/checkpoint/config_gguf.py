"""The metadata of a GGUF file -> ModelConfig.

Owns the keys that the architectures share; `rope_gguf.py` has those of the position embedding and
`layers_gguf.py` those of the layers. A value that would make the output silently wrong is refused
here. What the file does not say, its tensors do: whether there are biases, and how many rows the
vocabulary has.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import ModelLoadError
from ..files import shown_name
from ..gguf.container import GgufFile
from ..gguf.metadata import Metadata
from ..stored_tensor import StoredTensor
from .architecture_keys import ArchitectureKeys
from .config import Ends, ModelConfig
from .families.architecture import (
    EMBEDDING,
    FUSED_EXPERTS,
    HEAD,
    HEAD_BIAS,
    ROPE_DIVISORS,
    ROPE_FACTORS,
    Architecture,
)
from .families.known import ARCHITECTURES
from .families.layer_embeddings import gemma_layer_embeddings
from .layers_gguf import head_dim_of, layer_embedding_width, layers_of, sliding_head_dim_of
from .limits import MAX_CONTEXT, MAX_VOCAB, MAX_WIDTH
from .nearest import Trial, nearest
from .rope_gguf import Factors, rope_config, rotary_dim, sliding_rope
from .rope_keys import longest_context
from .ropes import RopeConfig
from .stored import plain_values
from .unknown_keys import Watched

_TOKENS = "tokenizer.ggml.tokens"
_BOS = "tokenizer.ggml.bos_token_id"
# Another value would change what is computed; with this one a key says nothing.
_NEUTRAL: Mapping[str, Any] = {
    "expert_count": 0,
    "attention.causal": True,
    "attention.scale": 0.0,
    "attention.temperature_scale": 0.0,
    "attention.clamp_kqv": 0.0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "nextn_predict_layers": 0,
    "attention.shared_kv_layers": 0,
    "embedding_length_per_layer_input": 0,
}
# The same of one architecture.
_OWN_NEUTRAL: Mapping[str, Mapping[str, Any]] = {"granite": {"rope.scaling.finetuned": True}}
_HIGHEST = 1e6


def gguf_config(file: GgufFile) -> ModelConfig:
    """Raises ModelLoadError: file, key, value and what is allowed."""
    metadata, tensors = file.metadata, file.tensors
    architecture = _architecture(metadata, tensors)
    keys = ArchitectureKeys(metadata, architecture.name)
    _refuse_unsupported(keys, architecture)
    return _read(metadata, tensors, keys, architecture)


def _read(
    metadata: Metadata,
    tensors: Mapping[str, StoredTensor],
    keys: ArchitectureKeys,
    architecture: Architecture,
) -> ModelConfig:
    dim = keys.integer("embedding_length", low=1, high=MAX_WIDTH)
    context = keys.integer("context_length", low=1, high=MAX_CONTEXT)
    head_dim = head_dim_of(keys, dim)
    ropes = _ropes(keys, architecture, head_dim, context, tensors)
    vocab_size = _vocab_size(metadata, tensors)
    return ModelConfig(
        architecture=architecture.name,
        dim=dim,
        vocab_size=vocab_size,
        norm_eps=keys.number(_eps_key(keys, architecture), low=0.0, high=1.0),
        ropes=ropes,
        layers=layers_of(keys, architecture, dim, head_dim, tensors),
        tie_embeddings=HEAD not in tensors,
        max_seq_len=max([context, *(longest_context(rope, context) for rope in ropes)]),
        eos_token_ids=(),  # the tokenizer knows them
        bos_token_id=(
            metadata.integer(_BOS, low=0, high=vocab_size - 1) if metadata.has(_BOS) else None
        ),
        centered_norms=architecture.centered_norms,
        norm_bias=architecture.norm_bias,
        fused_qkv="blk.0.attn_qkv.weight" in tensors,
        fused_experts=any(name.endswith(f".{FUSED_EXPERTS}.weight") for name in tensors),
        ends=_ends(keys, architecture, dim, context, tensors),
    )


def _eps_key(keys: ArchitectureKeys, architecture: Architecture) -> str:
    """Some files have that of LayerNorm for RMSNorm."""
    of_rms, of_layer = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    is_rms = architecture.rms_eps or not architecture.centered_norms
    return of_rms if is_rms and (keys.has(of_rms) or not keys.has(of_layer)) else of_layer


def _ends(
    keys: ArchitectureKeys,
    architecture: Architecture,
    dim: int,
    context: int,
    tensors: Mapping[str, StoredTensor],
) -> Ends:
    """The scales outside the layers; those that the architecture does not read are neutral."""
    of_logits = keys.number("logit_scale", low=0.0, high=_HIGHEST, default=1.0) or 1.0
    scale = math.sqrt(dim) if architecture.scales_embedding else 1.0
    width = layer_embedding_width(keys)
    return Ends(
        # 0 says nothing.
        embedding_scale=keys.number("embedding_scale", low=0.0, high=_HIGHEST, default=scale)
        or scale,
        n_positions=0 if architecture.has_rope else context,
        layer_embeddings=gemma_layer_embeddings(width, dim) if width else None,
        head_bias=HEAD_BIAS in tensors,
        logit_scale=1.0 / of_logits if architecture.logit_scale == "over" else of_logits,
        logit_softcap=keys.number("final_logit_softcapping", low=0.0, high=_HIGHEST, default=0.0),
    )


def _ropes(
    keys: ArchitectureKeys,
    architecture: Architecture,
    head_dim: int,
    context: int,
    tensors: Mapping[str, StoredTensor],
) -> tuple[RopeConfig, ...]:
    """That of the layers, or of full and of sliding ones."""
    if not architecture.has_rope:
        return ()
    count = rotary_dim(keys, head_dim) // 2
    divisors, long, short = (
        _rope_factors(tensors, name, count) for name in (ROPE_DIVISORS, *ROPE_FACTORS)
    )
    factors = Factors(divisors, long, short)
    rope = rope_config(keys, head_dim, context, factors, rounds_yarn=architecture.rounds_yarn)
    if architecture.sliding_theta is None:
        return (rope,)
    sliding_head_dim = sliding_head_dim_of(keys, head_dim)
    return rope, sliding_rope(keys, sliding_head_dim, rope, architecture.sliding_theta)


def _architecture(metadata: Metadata, tensors: Mapping[str, StoredTensor]) -> Architecture:
    kind = metadata.string("general.type", default="model")
    if kind != "model":
        metadata.fail("general.type", kind, "'model': this file belongs to a model, but is none")
    name = metadata.string("general.architecture")
    if name not in ARCHITECTURES:
        found = nearest(name, ARCHITECTURES, lambda other: _tried(metadata, tensors, name, other))
        raise ModelLoadError(
            f"{metadata.where}: general.architecture: {shown_name(name)} is not supported; "
            f"{found}; choose a model of a family that docs/models.md lists"
        )
    return ARCHITECTURES[name]


def _tried(metadata: Metadata, tensors: Mapping[str, StoredTensor], name: str, other: str) -> Trial:
    """What another architecture would not know of a file of the architecture `name`."""
    architecture, own = ARCHITECTURES[other], f"{name}."
    renamed = {
        f"{other}.{key.removeprefix(own)}" if key.startswith(own) else key: value
        for key, value in metadata.values.items()
    }
    watched = Watched(renamed)
    tried = Metadata(watched, metadata.where)
    refused = []
    is_read = True
    try:
        keys = ArchitectureKeys(tried, other)
        refused = [key for key, _, _ in _unsupported(keys, architecture)]
        _read(tried, tensors, keys, architecture)
    except ModelLoadError:
        is_read = False
    own = f"{other}."
    left = [key.removeprefix(own) for key in renamed if key.startswith(own) and is_read]
    unknown = [key for key in left if own + key not in watched.asked]
    return list(dict.fromkeys([*refused, *unknown])), is_read


def _unsupported(
    keys: ArchitectureKeys, architecture: Architecture
) -> Iterator[tuple[str, object, str]]:
    """Key, value and what is allowed, of what the architecture does not compute."""
    for key, neutral in {**_NEUTRAL, **_OWN_NEUTRAL.get(architecture.name, {})}.items():
        value = keys.get(key, neutral)
        is_read = key in architecture.reads or (key == "expert_count" and architecture.experts)
        if not is_read and value != neutral:
            yield key, value, f"{neutral}: nothing else is computed"


def _refuse_unsupported(keys: ArchitectureKeys, architecture: Architecture) -> None:
    for key, value, allowed in _unsupported(keys, architecture):
        keys.fail(key, value, allowed)


def _rope_factors(
    tensors: Mapping[str, StoredTensor], name: str, count: int
) -> tuple[float, ...] | None:
    """What each frequency is divided by, if the file has a tensor that says so: llama3's scaling,
    worked out, or a list of LongRoPE.
    """
    tensor = tensors.get(name)
    if tensor is None:
        return None
    if tensor.shape != (count,) or tensor.dtype != "F32":
        raise ModelLoadError(
            f"{tensor.file}: {name}: is {tensor.dtype} of shape {list(tensor.shape)}; "
            f"the heads need F32 of [{count}]"
        )
    divisors = plain_values(tensor)
    bad = np.flatnonzero(~(np.isfinite(divisors) & (divisors > 0)))
    if bad.size:
        raise ModelLoadError(
            f"{tensor.file}: {name}: {divisors[bad[0]]} at {bad[0]}; must be more than 0"
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
