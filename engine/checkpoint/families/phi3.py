"""Phi 3, 3.5 and 4: Llama with fused matrices, LongRoPE, and heads that may be rotated in part."""

from dataclasses import replace
from typing import Any

from ...files import JsonObject
from ..config import LayerConfig
from ..rope_keys import RopeDefaults, rope_config
from ..ropes import RopeConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import sliding_window

PHI3_NAMES = replace(LLAMA_NAMES, qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))

_ORIGINAL = "original_max_position_embeddings"
_TYPES, _OLD_NAMES = ("type", "rope_type"), ("su", "yarn")


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return (sizes.layer(window=sliding_window(file, default=0)),) * sizes.n_layers


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    """The first files call LongRoPE "su" or "yarn"; a missing original length means 4096."""
    changes: dict[str, Any] = {}
    if _ORIGINAL not in file.values:
        changes[_ORIGINAL] = 4096
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(rope := file.values.get(key), dict):
            changes[key] = {
                name: "longrope" if name in _TYPES and value in _OLD_NAMES else value
                for name, value in rope.items()
            }
    return (rope_config(file.changed(changes), head_dim, max_positions, defaults),)


FAMILY = Family(
    architecture="Phi3ForCausalLM",
    layers=_layers,
    sources=PHI3_NAMES.sources,
    max_positions=4096,
    norm_eps=1e-5,
    rope=RopeDefaults(partial=1.0),
    ropes=_ropes,
)
