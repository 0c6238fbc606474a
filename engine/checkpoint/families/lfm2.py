"""LFM 2: most layers are gated short convolutions, the others attention with a norm per query and
key head. LFM 2 MoE has experts behind the first layers, chosen by sigmoids and a bias.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...files import JsonObject
from ..config import NO_ATTENTION, ExpertsConfig, LayerConfig, QkNorm
from ..limits import MAX_LAYERS, MAX_WIDTH
from ..recurrent import ShortConvConfig
from ..rope_keys import RopeDefaults
from .expert_keys import experts_of
from .expert_names import ExpertNames
from .family import Family, Sizes
from .names import Names
from .recurrent_names import RecurrentNames

_KINDS = ("conv", "full_attention")
_MAX_KERNEL = 8
_HIGHEST = 1e6
_NAMES = Names(
    norm="model.embedding_norm",
    output="self_attn.out_proj",
    gate_up=("feed_forward.w1", "feed_forward.w3"),
    down="feed_forward.w2",
    attention_norm="operator_norm",
    mlp_norm="ffn_norm",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    recurrent=RecurrentNames(inputs=("conv.in_proj",), conv="conv.conv", output="conv.out_proj"),
    experts=ExpertNames(
        router="feed_forward.gate",
        selection_bias="feed_forward.expert_bias",
        gate_up=("feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"),
        down="feed_forward.experts.{}.w2",
    ),
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    dense = replace(sizes, hidden_dim=_hidden_dim(file, sizes))
    return _mixed(file, dense, [None] * sizes.n_layers)


def _layers_moe(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = experts_of(
        file,
        keys=("num_experts",),
        n_experts=32,
        n_used=4,
        hidden_dim=1792,
        scoring="sigmoid",
        selection_bias=file.boolean("use_expert_bias", default=True),
        renormalized=file.boolean("norm_topk_prob", default=True),
        scale=file.number("routed_scaling_factor", low=0.0, high=_HIGHEST, default=1.0),
    )
    n_dense = file.integer("num_dense_layers", low=0, high=MAX_LAYERS, default=2)
    return _mixed(
        file, sizes, [experts if index >= n_dense else None for index in range(sizes.n_layers)]
    )


def _mixed(
    file: JsonObject, sizes: Sizes, experts: Sequence[ExpertsConfig | None]
) -> tuple[LayerConfig, ...]:
    """`experts`: of each layer."""
    conv = ShortConvConfig(
        dim=sizes.dim,
        kernel=file.integer("conv_L_cache", low=2, high=_MAX_KERNEL, default=3),
        bias=file.boolean("conv_bias", default=False),
    )
    layers = [sizes.layer(qk_norm=QkNorm(), experts=own) for own in experts]
    return tuple(
        layer
        if kind == "full_attention"
        else replace(layer, attention=NO_ATTENTION, recurrent=conv)
        for layer, kind in zip(layers, _kinds(file, sizes.n_layers), strict=True)
    )


def _kinds(file: JsonObject, n_layers: int) -> Sequence[str]:
    """Of each layer."""
    if file.has("layer_types"):
        kinds = file.strings("layer_types")
        if len(kinds) != n_layers or not set(kinds) <= set(_KINDS):
            file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(_KINDS)}")
        return kinds
    full = file.values.get("full_attn_idxs")
    full = list(range(n_layers)) if full is None else full
    if not isinstance(full, list) or not all(isinstance(each, int) for each in full):
        file.fail("full_attn_idxs", full, "a list of numbers of layers")
    return [_KINDS[index in full] for index in range(n_layers)]


def _hidden_dim(file: JsonObject, sizes: Sizes) -> int:
    """The width that a file says is usually that of a part without a gate: two thirds of it remain,
    in multiples.
    """
    width = sizes.hidden_dim
    if file.has("block_ff_dim"):
        width = file.integer("block_ff_dim", low=1, high=MAX_WIDTH)
    if not file.boolean("block_auto_adjust_ff_dim", default=True):
        return width
    width = 2 * width // 3
    factor = file.number("block_ffn_dim_multiplier", low=0.0, high=_HIGHEST, default=1.0)
    multiple = file.integer("block_multiple_of", low=1, high=MAX_WIDTH, default=256)
    return -(-int(factor * width) // multiple) * multiple


FAMILY = Family(
    architecture="Lfm2ForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=128_000,
    n_kv_heads=8,
    sizes={"intermediate_size": 12_288},
    norm_eps=1e-5,
    eps_key="norm_eps",
    tied=True,
    rope=RopeDefaults(theta=1e6),
)
MOE = replace(
    FAMILY,
    architecture="Lfm2MoeForCausalLM",
    layers=_layers_moe,
    sizes={"intermediate_size": 7168},
    reads=frozenset({"num_experts", "num_experts_per_tok"}),
)
