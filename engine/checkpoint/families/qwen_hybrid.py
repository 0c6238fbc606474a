"""Qwen3-Next and Qwen3.5 (text): three of four layers are gated delta nets, the others gated
attention whose heads are rotated in part. Qwen3-Next and Qwen3.5 MoE have experts, with a part that
all tokens go through, behind a gate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...errors import ModelLoadError
from ...files import JsonObject
from ..config import NO_ATTENTION, ExpertsConfig, LayerConfig, ModelConfig, QkNorm
from ..limits import MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from ..recurrent import DeltaNetConfig
from ..rope_keys import RopeDefaults
from ..sources import ModelSources
from .expert_keys import experts_of, is_sparse, shared_width
from .family import Family, Sizes
from .llama import LLAMA_NAMES
from .predictor import APART
from .recurrent_names import RecurrentNames

_KINDS = ("linear_attention", "full_attention")
_LANES = 16  # of the kernels
_MAX_KERNEL = 8
_READS = frozenset({"linear_num_value_heads"})
_EXPERTS = frozenset({"num_experts", "num_local_experts", "num_experts_per_tok"})
_NEXT = RecurrentNames(
    inputs=("linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba"),
    conv="linear_attn.conv1d",
    output="linear_attn.out_proj",
    norm="linear_attn.norm",
    a_log="linear_attn.A_log",
    dt_bias="linear_attn.dt_bias",
)
# Predictors of more tokens have layers of their own, which `predictor.py` finds.
_NAMES = replace(LLAMA_NAMES, norms_plus=1.0, recurrent=_NEXT, ignored=r"mtp\..*")
_NAMES_5 = replace(
    _NAMES,
    recurrent=replace(
        _NEXT,
        inputs=tuple(f"linear_attn.in_proj_{part}" for part in ("qkv", "z", "b", "a")),
    ),
)
# As published, and as transformers has them in memory.
_NAMES_5_FUSED = replace(
    _NAMES_5,
    experts=replace(
        _NAMES_5.experts,
        gate_up=("mlp.experts.gate_up_proj",),
        down="mlp.experts.down_proj",
        weight="",
    ),
)


def _delta_net(file: JsonObject) -> DeltaNetConfig:
    def heads(key: str, default: int) -> int:
        return file.integer(key, low=1, high=MAX_HEADS, default=default)

    def width(key: str) -> int:
        found = file.integer(key, low=1, high=MAX_WIDTH, default=128)
        if found % _LANES:
            file.fail(key, found, f"a multiple of {_LANES}")
        return found

    kernel_key = "linear_conv_kernel_dim"
    try:
        return DeltaNetConfig(
            n_k_heads=heads("linear_num_key_heads", 16),
            n_v_heads=heads("linear_num_value_heads", 32),
            k_dim=width("linear_key_head_dim"),
            v_dim=width("linear_value_head_dim"),
            kernel=file.integer(kernel_key, low=2, high=_MAX_KERNEL, default=4),
        )
    except ValueError as error:
        raise ModelLoadError(f"{file.where}: linear attention: {error}") from error


def _kinds(file: JsonObject, n_layers: int) -> Sequence[str]:
    """Of each layer."""
    if not file.has("layer_types"):
        every = file.integer("full_attention_interval", low=1, high=MAX_LAYERS, default=4)
        return [_KINDS[(index + 1) % every == 0] for index in range(n_layers)]
    kinds = file.strings("layer_types")
    if len(kinds) != n_layers or not set(kinds) <= set(_KINDS):
        file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(_KINDS)}")
    return kinds


def _hybrid(
    file: JsonObject, sizes: Sizes, experts: Sequence[ExpertsConfig | None], shared: int = 0
) -> Iterator[LayerConfig]:
    """`experts`: of each layer."""
    bias = file.boolean("attention_bias", default=False)
    delta_net = _delta_net(file)
    for kind, own in zip(_kinds(file, sizes.n_layers), experts, strict=True):
        layer = sizes.layer(
            qkv_bias=bias, o_bias=bias, qk_norm=QkNorm(), experts=own, shared_dim=shared
        )
        if kind == "full_attention":
            yield replace(layer, attention=replace(layer.attention, output_gate=True))
        else:
            yield replace(layer, attention=NO_ATTENTION, recurrent=delta_net)


def _experts(file: JsonObject, *, n: int, n_used: int, renormalized: bool) -> ExpertsConfig:
    return experts_of(
        file,
        keys=("num_experts", "num_local_experts"),
        n_experts=n,
        n_used=n_used,
        hidden_dim=512,
        renormalized=renormalized,
        shared_gate=True,
    )


def _shared(file: JsonObject) -> int:
    return shared_width(file, "shared_expert_intermediate_size", default=512)


def _layers_next(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    renormalized = file.boolean("norm_topk_prob", default=True)
    experts = _experts(file, n=512, n_used=10, renormalized=renormalized)
    of_layers = [experts if sparse else None for sparse in is_sparse(file, sizes.n_layers)]
    return tuple(_hybrid(file, sizes, of_layers, _shared(file)))


def _layers_5(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    return tuple(_hybrid(file, sizes, [None] * sizes.n_layers))


def _layers_5_moe(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    experts = _experts(file, n=256, n_used=8, renormalized=True)
    return tuple(_hybrid(file, sizes, [experts] * sizes.n_layers, _shared(file)))


def _sources_5_moe(config: ModelConfig) -> ModelSources:
    names = _NAMES_5_FUSED if config.fused_experts else _NAMES_5
    return names.sources(config)


QWEN3_NEXT = Family(
    architecture="Qwen3NextForCausalLM",
    layers=_layers_next,
    sources=_NAMES.sources,
    predictor=partial(APART.sources, _NAMES),
    max_positions=32_768,
    n_kv_heads=2,
    head_dim=256,
    sizes={"intermediate_size": 5632},
    rope=RopeDefaults(partial=0.25),
    reads=_READS | _EXPERTS,
)
QWEN3_5 = replace(
    QWEN3_NEXT,
    architecture="Qwen3_5ForCausalLM",
    layers=_layers_5,
    sources=_NAMES_5.sources,
    predictor=partial(APART.sources, _NAMES_5),
    n_kv_heads=4,
    sizes={"intermediate_size": 12_288},
    reads=_READS,
)
QWEN3_5_MOE = replace(
    QWEN3_NEXT,
    architecture="Qwen3_5MoeForCausalLM",
    layers=_layers_5_moe,
    sources=_sources_5_moe,
    predictor=partial(APART.sources, _NAMES_5),
)
