"""Llama, and the tensor names that most families took over from it."""

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .names import Names


def llama_layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    """All alike, with biases where config.json says so."""
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    return (sizes.layer(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias),) * sizes.n_layers


# Tables that old checkpoints stored; they follow from config.json.
LLAMA_NAMES = Names(ignored=r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

FAMILY = Family(
    architecture="LlamaForCausalLM",
    layers=llama_layers,
    sources=LLAMA_NAMES.sources,
    max_positions=2048,
)
