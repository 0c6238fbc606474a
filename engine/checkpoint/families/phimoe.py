"""Phi 3.5 MoE: LayerNorm, biases and LongRoPE, and a router that weighs each of its two experts
among those that come close to it.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import Ends, LayerConfig
from ..rope_keys import RopeDefaults, rope_config
from ..ropes import LongScaling, RopeConfig
from .expert_keys import experts_of
from .family import Family, Sizes
from .mixtures import MIXTRAL_NAMES
from .windows import sliding_window

_DEFAULT_JITTER = 0.01
DEFAULT_SPREAD = 2 * _DEFAULT_JITTER
_N_USED = 2
_MAX_FACTOR = 1e6


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    jitter = file.number("router_jitter_noise", low=0.0, high=1.0, default=_DEFAULT_JITTER)
    experts = experts_of(
        file,
        keys=("num_local_experts",),
        n_experts=16,
        n_used=_N_USED,
        hidden_key="intermediate_size",
        hidden_dim=sizes.hidden_dim,
        scoring="sparse_mixer",
        spread=2 * jitter,
    )
    if experts.n_used != _N_USED:
        file.fail("num_experts_per_tok", experts.n_used, f"{_N_USED}: the router chooses no others")
    bias = file.boolean("attention_bias", default=False)
    window = sliding_window(file, default=0)
    return (
        sizes.layer(window=window, qkv_bias=bias, o_bias=bias, experts=experts),
    ) * sizes.n_layers


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    """LongRoPE with factors of attention of its own, `long_mscale` and `short_mscale`."""
    rope = rope_config(file, head_dim, max_positions, defaults)
    if rope.scaling is None:
        return (rope,)
    own = file.nested("rope_scaling" if file.values.get("rope_scaling") else "rope_parameters")
    if not isinstance(rope.scaling, LongScaling):
        key = "rope_type" if own.has("rope_type") else "type"
        own.fail(key, own.values.get(key), "'default' or 'longrope'")
    scaling = replace(
        rope.scaling,
        attention_factor=own.number("long_mscale", low=0.0, high=_MAX_FACTOR),
        short_attention_factor=own.number("short_mscale", low=0.0, high=_MAX_FACTOR),
    )
    return (replace(rope, scaling=scaling),)


def _ends(file: JsonObject, dim: int) -> Ends:
    return Ends(head_bias=file.boolean("lm_head_bias", default=False))


FAMILY = Family(
    architecture="PhiMoEForCausalLM",
    layers=_layers,
    sources=MIXTRAL_NAMES.sources,
    max_positions=131_072,
    n_kv_heads=8,
    sizes={"intermediate_size": 6400},
    norm_eps=1e-5,
    centered_norms=True,
    norm_bias=True,
    rope=RopeDefaults(theta=1e6),
    ropes=_ropes,
    ends=_ends,
    reads=frozenset({"num_local_experts", "num_experts_per_tok"}),
)
# As transformers writes it.
SAVED = replace(FAMILY, architecture="PhimoeForCausalLM")
