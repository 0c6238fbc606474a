"""Falcon: parallel blocks with LayerNorm, one norm or two; q, k and v of each key head stand
together. The first models, with biases of scores in the place of rope, are refused.
"""

from dataclasses import replace

from ...files import JsonObject
from ..config import LayerConfig, ModelConfig
from ..limits import MAX_HEADS
from ..sources import ModelSources
from .family import Family, Sizes
from .names import Names

_NAMES = Names(
    embedding="transformer.word_embeddings",
    norm="transformer.ln_f",
    layer="transformer.h.{}.",
    qkv=("self_attention.query_key_value",),
    fused_per_head=True,
    output="self_attention.dense",
    gate_up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
    ignored=r"transformer\.h\.\d+\.self_attention\.rotary_emb\.inv_freq",
)
_NEW, _NORMS = "new_decoder_architecture", "num_ln_in_parallel_attn"


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    is_new = file.boolean(_NEW, default=False)
    if not file.boolean("parallel_attn", default=True):
        file.fail("parallel_attn", False, "true")
    n_norms = file.integer(_NORMS, low=1, high=2, default=2 if is_new else 1)
    if n_norms == 2 and not is_new:
        file.fail(_NORMS, n_norms, f"1 without {_NEW}")
    bias = file.boolean("bias", default=False)
    own = replace(sizes, n_kv_heads=_n_kv_heads(file, sizes) if is_new else _one_kv_head(file))
    layer = own.layer(qkv_bias=bias, o_bias=bias, mlp_bias=bias, gated=False, parallel=True)
    return (replace(layer, two_norms=n_norms == 2),) * sizes.n_layers


def _n_kv_heads(file: JsonObject, sizes: Sizes) -> int:
    key = "num_kv_heads"
    found = file.integer(key, low=1, high=MAX_HEADS, default=sizes.n_heads)
    if sizes.n_heads % found:
        file.fail(key, found, f"a divisor of the {sizes.n_heads} attention heads")
    return found


def _one_kv_head(file: JsonObject) -> int:
    if not file.boolean("multi_query", default=True):
        file.fail("multi_query", False, f"true without {_NEW}")
    return 1


def _sources(config: ModelConfig) -> ModelSources:
    norms = ("ln_attn", "ln_mlp") if config.layers[0].two_norms else ("input_layernorm", "")
    return replace(_NAMES, attention_norm=norms[0], mlp_norm=norms[1]).sources(config)


FAMILY = Family(
    architecture="FalconForCausalLM",
    layers=_layers,
    sources=_sources,
    max_positions=2048,
    has_groups=False,
    keys={"intermediate_size": "ffn_hidden_size"},
    hidden_per_dim=4,
    norm_eps=1e-5,
    eps_key="layer_norm_epsilon",
    centered_norms=True,
    norm_bias=True,
    activation_key="activation",
    activation="gelu",
    gated=False,
    tied=True,
    reads=frozenset({"parallel_attn"}),
)
