"""HunYuan, dense: Llama with a norm of each query and key head behind the rotation."""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig, QkNorm
from ..rope_keys import RopeDefaults, rope_config
from ..ropes import RopeConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    norm = QkNorm(after_rope=True)
    return (sizes.layer(qkv_bias=bias, o_bias=bias, qk_norm=norm),) * sizes.n_layers


def _ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    """`dynamic` with an `alpha` stands for a larger theta, whatever the context."""
    key = "rope_scaling" if file.values.get("rope_scaling") else "rope_parameters"
    rope = file.nested(key) if file.has(key) else None
    if rope is None or not rope.values.get("alpha"):
        return (rope_config(file, head_dim, max_positions, defaults),)
    alpha = rope.number("alpha", low=1e-3, high=1e9)
    if head_dim == 2:
        rope.fail("alpha", alpha, "left out where a head has 2 dimensions")
    plain = file.changed({key: None, "rope_theta": _theta(file, rope)})
    found = rope_config(plain, head_dim, max_positions, defaults)
    return (replace(found, theta=found.theta * alpha ** (head_dim / (head_dim - 2))),)


def _theta(file: JsonObject, rope: JsonObject) -> object:
    return rope.values.get("rope_theta", file.values.get("rope_theta"))


FAMILY = Family(
    architecture="HunYuanDenseV1ForCausalLM",
    layers=_layers,
    sources=replace(
        LLAMA_NAMES, q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm"
    ).sources,
    max_positions=2048,
    norm_eps=1e-5,
    ropes=_ropes,
)
