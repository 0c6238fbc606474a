"""Nemotron-H: each layer is Mamba 2, or attention without position embedding, or a feed-forward
part without a gate, or a mixture of such parts.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...files import JsonObject
from ..config import NO_ATTENTION, NO_MLP, LayerConfig, MlpConfig
from ..limits import MAX_HEADS, MAX_WIDTH
from ..recurrent import Mamba2Config
from ..rope_keys import RopeDefaults
from ..ropes import RopeConfig
from .expert_keys import shared_width, sigmoid_experts_of
from .expert_names import ExpertNames
from .family import Family, Sizes
from .layer_parts import shared_apart
from .mamba_keys import MAX_KERNEL, checked
from .names import Names
from .recurrent_names import RecurrentNames

_MAMBA, _ATTENTION, _MLP, _MOE = "linear_attention", "full_attention", "mlp", "moe"
# Older words, and the letters of a pattern.
_OLDER = {
    "mamba": _MAMBA,
    "attention": _ATTENTION,
    "M": _MAMBA,
    "*": _ATTENTION,
    "-": _MLP,
    "E": _MOE,
}
_HIGHEST = 1e6
_NAMES = Names(
    embedding="backbone.embeddings",
    norm="backbone.norm_f",
    layer="backbone.layers.{}.",
    qkv=("mixer.q_proj", "mixer.k_proj", "mixer.v_proj"),
    output="mixer.o_proj",
    gate_up=("mixer.up_proj",),
    down="mixer.down_proj",
    attention_norm="norm",
    mlp_norm="norm",
    recurrent=RecurrentNames(
        inputs=("mixer.in_proj",),
        conv="mixer.conv1d",
        output="mixer.out_proj",
        norm="mixer.norm",
        a_log="mixer.A_log",
        dt_bias="mixer.dt_bias",
        skip="mixer.D",
    ),
    experts=ExpertNames(
        router="mixer.gate",
        selection_bias="mixer.gate.e_score_correction_bias",
        gate_up=("mixer.experts.{}.up_proj",),
        down="mixer.experts.{}.down_proj",
        shared_gate_up=("mixer.shared_experts.up_proj",),
        shared_down="mixer.shared_experts.down_proj",
        latent_in="mixer.fc1_latent_proj",
        latent_out="mixer.fc2_latent_proj",
    ),
    # Predictors of more tokens have layers of their own.
    ignored=r"mtp\..*",
)


def _layers(file: JsonObject, sizes: Sizes) -> tuple[LayerConfig, ...]:
    if file.boolean("tie_word_embeddings", default=False):
        file.fail("tie_word_embeddings", True, "false: transformers ties nothing here")
    # Biases of attention are said, but never there.
    mlp_bias = file.boolean("mlp_bias", default=False)
    whole = sizes.layer(rope=None, mlp_bias=mlp_bias, gated=False)
    said = _kinds(file)
    kinds = {
        _MAMBA: replace(whole, attention=NO_ATTENTION, recurrent=_mamba(file), mlp=NO_MLP),
        _ATTENTION: replace(whole, mlp=NO_MLP),
        _MLP: replace(whole, attention=NO_ATTENTION),
    }
    if _MOE in said:
        kinds[_MOE] = replace(kinds[_MLP], mlp=_mixture(file, kinds[_MLP].mlp))
    return tuple(part for kind in said for part in shared_apart(kinds[kind]))


def _mixture(file: JsonObject, plain: MlpConfig) -> MlpConfig:
    experts = sigmoid_experts_of(
        file,
        keys=("n_routed_experts", "num_local_experts"),
        n_experts=8,
        n_used=2,
        hidden_dim=7688,
        latent_dim=file.integer("moe_latent_size", low=0, high=MAX_WIDTH, default=0),
    )
    shared = shared_width(file, "moe_shared_expert_intermediate_size", default=7688)
    return replace(plain, hidden_dim=shared, experts=experts)


def _mamba(file: JsonObject) -> Mamba2Config:
    n_heads = file.integer("mamba_num_heads", low=1, high=MAX_HEADS, default=128)
    bias = file.boolean("use_bias", default=False)
    if file.string("mamba_hidden_act", default="silu") != "silu":
        file.fail("mamba_hidden_act", file.values["mamba_hidden_act"], "'silu'")
    # The limits of the configuration are not those that transformers computes with.
    least = file.number("time_step_min", low=0.0, high=_HIGHEST, default=0.001)
    return checked(
        file,
        head_key="mamba_head_dim",
        state_key="ssm_state_size",
        n_heads=n_heads,
        n_groups=file.integer("n_groups", low=1, high=n_heads, default=8),
        head_dim=file.integer("mamba_head_dim", low=1, high=MAX_WIDTH, default=64),
        state_dim=file.integer("ssm_state_size", low=1, high=MAX_WIDTH, default=128),
        kernel=file.integer("conv_kernel", low=2, high=MAX_KERNEL, default=4),
        conv_bias=file.boolean("use_conv_bias", default=True),
        in_bias=bias,
        out_bias=bias,
        dt_limits=(least, float("inf")),
    )


def _kinds(file: JsonObject) -> Sequence[str]:
    """Of each layer."""
    pattern_key = "hybrid_override_pattern"
    if file.has(pattern_key):
        key, said = pattern_key, list(file.string(pattern_key))
    else:
        key = "layer_types" if file.has("layer_types") else "layers_block_type"
        said = list(file.strings(key)) if file.has(key) else [_MAMBA, _MOE, _ATTENTION, _MLP]
    kinds = [_OLDER.get(kind, kind) for kind in said]
    allowed = {_MAMBA, _ATTENTION, _MLP, _MOE}
    if not set(kinds) <= allowed or _ATTENTION not in kinds:
        file.fail(key, file.values.get(key), f"some of {', '.join(sorted(allowed))} with attention")
    return kinds


def _no_ropes(
    file: JsonObject, head_dim: int, max_positions: int, defaults: RopeDefaults
) -> tuple[RopeConfig, ...]:
    return ()


FAMILY = Family(
    architecture="NemotronHForCausalLM",
    layers=_layers,
    sources=_NAMES.sources,
    max_positions=4096,
    n_kv_heads=8,
    head_dim=128,
    # How many layers there are, their kinds say.
    sizes={"intermediate_size": 21_504, "num_hidden_layers": 1},
    norm_eps=1e-5,
    eps_key="layer_norm_epsilon",
    activation_key="mlp_hidden_act",
    activation="relu2",
    gated=False,
    ropes=_no_ropes,
    reads=frozenset({"n_routed_experts", "num_local_experts", "num_experts_per_tok"}),
)
