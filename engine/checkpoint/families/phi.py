"""Phi 1, 1.5 and 2: parallel blocks with one LayerNorm, biases everywhere, heads that are rotated
in part.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import Ends, LayerConfig
from ..rope_keys import RopeDefaults
from .family import Family, Sizes
from .llama import LLAMA_NAMES

_NAMES = replace(
    LLAMA_NAMES,
    norm="model.final_layernorm",
    output="self_attn.dense",
    gate_up=("mlp.fc1",),
    down="mlp.fc2",
    mlp_norm="",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    layer = sizes.layer(qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, parallel=True)
    return (layer,) * sizes.n_layers


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(head_bias=True)


FAMILY = Family(
    architecture="PhiForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=2048,
    norm_eps=1e-5,
    eps_key="layer_norm_eps",
    centered_norms=True,
    norm_bias=True,
    activation="gelu_new",
    gated=False,
    rope=RopeDefaults(partial=0.5),
    ends=_ends,
)
