"""Mixtures of experts whose attention is that of a family without experts: Mixtral, OLMoE, Granite
MoE, GLM 4.5 and ERNIE 4.5.
"""

from dataclasses import replace
from functools import partial

from ...files import JsonObject
from ..config import Ends, LayerConfig, ModelConfig, QkNorm
from ..limits import MAX_EXPERTS, MAX_LAYERS
from ..rope_keys import RopeDefaults
from ..sources import ModelSources
from . import ernie4_5, granite
from .expert_keys import experts_of, sigmoid_experts_of
from .expert_names import ExpertNames
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .predictor import APPENDED, following_layers
from .windows import sliding_window

MIXTRAL_NAMES = replace(
    LLAMA_NAMES,
    experts=ExpertNames(
        router="block_sparse_moe.gate",
        gate_up=("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
        down="block_sparse_moe.experts.{}.w2",
    ),
)
_GRANITE_NAMES = replace(
    LLAMA_NAMES,
    experts=ExpertNames(
        router="block_sparse_moe.router.layer",
        gate_up=("block_sparse_moe.input_linear",),
        down="block_sparse_moe.output_linear",
    ),
)
_SHARED = ExpertNames(
    selection_bias="mlp.gate.e_score_correction_bias",
    shared_gate_up=("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"),
    shared_down="mlp.shared_experts.down_proj",
)
_GLM4_NAMES = replace(LLAMA_NAMES, experts=_SHARED)
_ERNIE_NAMES = replace(
    LLAMA_NAMES,
    rope_pairs=True,
    experts=replace(
        _SHARED,
        selection_bias="mlp.moe_statics.e_score_correction_bias",
    ),
    # A predictor of more tokens, which is not used.
    ignored=rf"{LLAMA_NAMES.ignored}|model\.mtp_.*",
)
_MAX_NORM_MIN = 1e-9
_LOCAL = frozenset({"num_local_experts", "num_experts_per_tok"})


def _mixtral(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = experts_of(
        file,
        keys=("num_local_experts",),
        n_experts=8,
        n_used=2,
        hidden_key="intermediate_size",
        hidden_dim=sizes.hidden_dim,
        renormalized=True,
    )
    window = sliding_window(file, default=0)
    return (sizes.layer(window=window, experts=experts),) * sizes.n_layers


def _olmoe(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = experts_of(
        file,
        keys=("num_experts", "num_local_experts"),
        n_experts=64,
        n_used=8,
        hidden_key="intermediate_size",
        hidden_dim=sizes.hidden_dim,
        renormalized=file.boolean("norm_topk_prob", default=False),
    )
    bias = file.boolean("attention_bias", default=False)
    layer = sizes.layer(qkv_bias=bias, o_bias=bias, qk_norm=QkNorm(over="all"), experts=experts)
    return (layer,) * sizes.n_layers


def _granite(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = experts_of(
        file,
        keys=("num_local_experts",),
        n_experts=8,
        n_used=2,
        hidden_key="intermediate_size",
        hidden_dim=sizes.hidden_dim,
        scoring="chosen_softmax",
    )
    plain = granite.FAMILY.layers(file, sizes)
    mlp = sizes.layer(experts=experts).mlp
    return tuple(replace(layer, mlp=mlp) for layer in plain)


def _glm4(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = sigmoid_experts_of(
        file,
        keys=("n_routed_experts", "num_local_experts"),
        n_experts=128,
        n_used=8,
        hidden_dim=1408,
    )
    n_dense = file.integer("first_k_dense_replace", low=0, high=MAX_LAYERS, default=1)
    n_shared = file.integer("n_shared_experts", low=0, high=MAX_EXPERTS, default=1)
    bias = file.boolean("attention_bias", default=False)
    norm = QkNorm() if file.boolean("use_qk_norm", default=False) else None
    return tuple(
        sizes.layer(
            qkv_bias=bias,
            qk_norm=norm,
            experts=experts if index >= n_dense else None,
            shared_dim=n_shared * experts.hidden_dim,
        )
        for index in range(sizes.n_layers)
    )


def _ernie_ends(file: JsonObject, dim: int) -> Ends:
    return Ends(head_bias=file.boolean("use_bias", default=False))


def _glm4_sources(config: ModelConfig) -> ModelSources:
    following = following_layers(r"model\.layers\.{}\.", config.n_layers)
    ignored = f"{_GLM4_NAMES.ignored}|{following}"
    return replace(_GLM4_NAMES, ignored=ignored).sources(config)


def _ernie(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    bias = file.boolean("use_bias", default=False)
    # What the weights are divided by is not clamped here; at this height it makes no difference.
    file.number("moe_norm_min", low=0.0, high=_MAX_NORM_MIN, default=0.0)
    experts = experts_of(
        file,
        keys=("moe_num_experts", "num_experts"),
        n_experts=64,
        used_key="moe_k" if file.has("moe_k") else "num_experts_per_tok",
        n_used=6,
        hidden_dim=1536,
        selection_bias=True,
        renormalized=True,
    )
    n_shared = file.integer("moe_num_shared_experts", low=0, high=MAX_EXPERTS, default=2)
    first = file.integer("moe_layer_start_index", low=0, high=MAX_LAYERS, default=1)
    last = file.integer("moe_layer_end_index", low=-1, high=MAX_LAYERS, default=-1)
    every = file.integer("moe_layer_interval", low=1, high=MAX_LAYERS, default=1)
    last = sizes.n_layers - 1 if last == -1 else last

    def is_sparse(index: int) -> bool:
        return (index + 1) % every == 0 and first <= index <= last

    return tuple(
        sizes.layer(
            qkv_bias=bias,
            o_bias=bias,
            mlp_bias=bias,
            experts=experts if is_sparse(index) else None,
            shared_dim=n_shared * experts.hidden_dim,
        )
        for index in range(sizes.n_layers)
    )


MIXTRAL = Family(
    architecture="MixtralForCausalLM",
    layers=_mixtral,
    sources=MIXTRAL_NAMES.sources,
    max_positions=131_072,
    n_kv_heads=8,
    sizes={"intermediate_size": 14_336},
    norm_eps=1e-5,
    rope=RopeDefaults(theta=1e6),
    reads=_LOCAL,
)
OLMOE = Family(
    architecture="OlmoeForCausalLM",
    layers=_olmoe,
    sources=LLAMA_NAMES.sources,
    max_positions=4096,
    sizes={"intermediate_size": 2048},
    norm_eps=1e-5,
    reads=_LOCAL | {"num_experts"},
)
GRANITE_MOE = replace(
    granite.FAMILY,
    architecture="GraniteMoeForCausalLM",
    layers=_granite,
    sources=_GRANITE_NAMES.sources,
    reads=granite.FAMILY.reads | _LOCAL,
)
GLM4_MOE = Family(
    architecture="Glm4MoeForCausalLM",
    layers=_glm4,
    sources=_glm4_sources,
    predictor=partial(APPENDED.sources, _GLM4_NAMES),
    max_positions=131_072,
    n_kv_heads=8,
    sizes={"intermediate_size": 10_944},
    norm_eps=1e-5,
    rope=RopeDefaults(partial=0.5),
    reads=frozenset(
        {"n_routed_experts", "num_local_experts", "num_experts_per_tok", "use_qk_norm"}
    ),
)
ERNIE_MOE = replace(
    ernie4_5.FAMILY,
    architecture="Ernie4_5_MoeForCausalLM",
    layers=_ernie,
    sources=_ERNIE_NAMES.sources,
    ends=_ernie_ends,
    n_kv_heads=4,
    head_dim=None,
    reads=frozenset({"moe_num_experts", "num_experts", "num_experts_per_tok"}),
)
