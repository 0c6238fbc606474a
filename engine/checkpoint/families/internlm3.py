"""InternLM 3: Llama with other names of its biases."""

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    """All matrices have biases or none."""
    of_attention = _bias(file, "attention_bias", "qkv_bias")
    of_mlp = _bias(file, "mlp_bias", "bias")
    if of_attention != of_mlp:
        key = "mlp_bias" if file.has("mlp_bias") else "bias"
        file.fail(key, of_mlp, f"{of_attention}, as it is in attention")
    layer = sizes.layer(qkv_bias=of_attention, o_bias=of_attention, mlp_bias=of_mlp)
    return (layer,) * sizes.n_layers


def _bias(file: JsonObject, key: str, old: str) -> bool:
    return file.boolean(key if file.has(key) else old, default=False)


FAMILY = Family(
    architecture="InternLM3ForCausalLM",
    layers=_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=32_768,
    n_kv_heads=2,
    head_dim=128,
    sizes={"intermediate_size": 10_240},
    norm_eps=1e-5,
)
