"""gpt-oss: experts with biases and a clamped activation, a sink of each head, and windows in every
other layer. Experts are stored in blocks of MXFP4, or as plain numbers, which are then transposed.
"""

from dataclasses import replace
from typing import Any

from ...files import JsonObject
from ..config import LayerConfig, ModelConfig
from ..rope_keys import RopeDefaults
from ..ropes import RopeConfig
from ..sources import ModelSources
from .expert_keys import experts_of
from .expert_names import ExpertNames
from .family import Family, Sizes, one_rope
from .llama import LLAMA_NAMES
from .windows import patterned_windows

_IN_BLOCKS = ExpertNames(
    router="mlp.router",
    gate_up=("mlp.experts.gate_up_proj",),
    down="mlp.experts.down_proj",
    takes_turns=True,
    weight="",
    bias="_bias",
)
_PLAIN = replace(_IN_BLOCKS, transposed=True)
# A file without a word about rope has this one.
_ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
# The numbers in the activation "clamped".
_SWIGLU = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    for key, only in _SWIGLU.items():
        value = file.number(key, low=0.0, high=1e6, default=only)
        if value != only:
            file.fail(key, value, f"{only:g}: nothing else is computed")
    experts = experts_of(
        file,
        keys=("num_local_experts", "num_experts"),
        n_experts=128,
        n_used=4,
        hidden_key="intermediate_size",
        hidden_dim=sizes.hidden_dim,
        scoring="chosen_softmax",
        router_bias=True,
        bias=True,
    )
    bias = file.boolean("attention_bias", default=True)
    clamped = replace(sizes, activation="clamped")
    windows = patterned_windows(file, sizes.n_layers, full_every=2, default_window=128)
    return tuple(
        clamped.layer(window=window, qkv_bias=bias, o_bias=bias, sinks=True, experts=experts)
        for window in windows
    )


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    if not (file.has("rope_parameters") or file.has("rope_scaling")):
        file = file.changed({"rope_parameters": _ROPE})
    return one_rope(file, head_dim, max_positions, defaults)


def _sources(config: ModelConfig) -> ModelSources:
    experts = _IN_BLOCKS if config.experts_in_blocks else _PLAIN
    return replace(LLAMA_NAMES, experts=experts).sources(config)


FAMILY = Family(
    architecture="GptOssForCausalLM",
    layers=_layers,
    sources=_sources,
    max_positions=131_072,
    n_kv_heads=8,
    head_dim=64,
    sizes={"intermediate_size": 2880},
    norm_eps=1e-5,
    rope=RopeDefaults(theta=150_000.0),
    ropes=_ropes,
    has_mxfp4=True,
    reads=frozenset({"num_local_experts", "num_experts", "num_experts_per_tok", *_SWIGLU}),
)
