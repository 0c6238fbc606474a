"""Granite 4: layers of Mamba 2, some of attention, usually without position embedding, with
Granite's multipliers; experts, if there are any, stand beside a part that all tokens go through.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...files import JsonObject
from ..config import NO_ATTENTION, ExpertsConfig, LayerConfig
from ..limits import MAX_WIDTH
from . import granite
from .expert_keys import experts_of, shared_width
from .expert_names import ExpertNames
from .family import Sizes
from .llama import LLAMA_NAMES
from .mamba_keys import mamba2_of
from .recurrent_names import RecurrentNames

# Older files, and newer ones.
_KINDS = {
    "mamba": False,
    "linear_attention": False,
    "attention": True,
    "full_attention": True,
}
MAMBA_NAMES = RecurrentNames(
    inputs=("mamba.in_proj",),
    conv="mamba.conv1d",
    output="mamba.out_proj",
    norm="mamba.norm",
    a_log="mamba.A_log",
    dt_bias="mamba.dt_bias",
    skip="mamba.D",
)
_SHARED = (("shared_mlp.input_linear",), "shared_mlp.output_linear")
_NAMES = replace(
    LLAMA_NAMES,
    gate_up=_SHARED[0],
    down=_SHARED[1],
    recurrent=MAMBA_NAMES,
    experts=ExpertNames(
        router="block_sparse_moe.router.layer",
        gate_up=("block_sparse_moe.input_linear",),
        down="block_sparse_moe.output_linear",
        shared_gate_up=_SHARED[0],
        shared_down=_SHARED[1],
    ),
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    shared = shared_width(file, "shared_intermediate_size", default=1024)
    own = replace(sizes, hidden_dim=shared)
    (plain, *_) = granite.FAMILY.layers(file, own)
    mlp = own.layer(experts=_experts(file, sizes.hidden_dim), shared_dim=shared).mlp
    rope = 0 if _has_rope(file) else None
    attention = replace(plain, attention=replace(plain.attention, rope=rope), mlp=mlp)
    return tuple(_mixed(file, attention, sizes))


def _mixed(file: JsonObject, attention: LayerConfig, sizes: Sizes) -> Iterator[LayerConfig]:
    expand = file.integer("mamba_expand", low=1, high=MAX_WIDTH, default=2)
    bias = file.boolean("mamba_proj_bias", default=False)
    mamba = mamba2_of(file, inner=expand * sizes.dim, in_bias=bias, out_bias=bias)
    recurrent = replace(attention, attention=NO_ATTENTION, recurrent=mamba)
    for kind in _kinds(file, sizes.n_layers):
        yield attention if _KINDS[kind] else recurrent


def _kinds(file: JsonObject, n_layers: int) -> Sequence[str]:
    key = "layers_block_type" if file.has("layers_block_type") else "layer_types"
    kinds = file.strings(key) if file.has(key) else ["mamba"] * n_layers
    if len(kinds) != n_layers or not set(kinds) <= set(_KINDS):
        file.fail(key, kinds, f"{n_layers} times one of {', '.join(_KINDS)}")
    if not any(_KINDS[kind] for kind in kinds):
        file.fail(key, kinds, "attention in some layer")
    return kinds


def _experts(file: JsonObject, hidden_dim: int) -> ExpertsConfig | None:
    if file.values.get("num_local_experts", 8) == 0:
        return None
    return experts_of(
        file,
        keys=("num_local_experts",),
        n_experts=8,
        n_used=2,
        hidden_key="intermediate_size",
        hidden_dim=hidden_dim,
        scoring="chosen_softmax",
    )


def _has_rope(file: JsonObject) -> bool:
    key = "position_embedding_type"
    kind = file.string(key, default="nope")
    if kind not in ("rope", "nope"):
        file.fail(key, kind, "'rope' or 'nope'")
    return kind == "rope"


FAMILY = replace(
    granite.FAMILY,
    architecture="GraniteMoeHybridForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    sizes={"intermediate_size": 11_008},
    reads=granite.FAMILY.reads | {"num_local_experts", "num_experts_per_tok"},
)
