"""StarCoder 2: LayerNorm and biases everywhere, and a feed-forward part without a gate."""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .windows import sliding_window


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("use_bias", default=True)
    window = sliding_window(file, default=0)
    layer = sizes.layer(window=window, qkv_bias=bias, o_bias=bias, mlp_bias=bias, gated=False)
    return (layer,) * sizes.n_layers


FAMILY = Family(
    architecture="Starcoder2ForCausalLM",
    layers=_layers,
    sources=replace(LLAMA_NAMES, gate_up=("mlp.c_fc",), down="mlp.c_proj").sources,
    max_positions=4096,
    n_kv_heads=2,
    norm_eps=1e-5,
    eps_key="norm_epsilon",
    centered_norms=True,
    norm_bias=True,
    activation="gelu_pytorch_tanh",
    gated=False,
    tied=True,
)
