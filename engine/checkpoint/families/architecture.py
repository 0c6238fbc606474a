"""What an architecture of GGUF files is, and where such a file has its tensors.

llama.cpp's converter gives all of them the same names; they differ in which tensors there are, and
in the order of rows.
"""

from dataclasses import dataclass, replace
from typing import Literal

from ..activation import Activation
from ..config import ModelConfig, QkNorm, Scoring
from ..sources import ModelSources
from .expert_names import ExpertNames
from .layer_embeddings import LayerEmbeddingNames
from .names import Names
from .predictor import IN_GGUF, PredictorSources, following_layers
from .recurrent_names import RecurrentNames

EMBEDDING, HEAD, HEAD_BIAS = "token_embd.weight", "output.weight", "output.bias"
FUSED_EXPERTS = "ffn_gate_up_exps"
ROPE_DIVISORS = "rope_freqs.weight"
ROPE_FACTORS = ("rope_factors_long.weight", "rope_factors_short.weight")

_EXPERTS = ExpertNames(
    router="ffn_gate_inp",
    selection_bias="exp_probs_b.bias",
    gate_up=("ffn_gate_exps", "ffn_up_exps"),
    down="ffn_down_exps",
    shared_gate_up=("ffn_gate_shexp", "ffn_up_shexp"),
    shared_down="ffn_down_shexp",
    shared_gate="ffn_gate_inp_shexp",
    shared_gate_is_vector=True,
    latent_in="ffn_latent_down",
    latent_out="ffn_latent_up",
)
GGUF_NAMES = Names(
    embedding="token_embd",
    positions="position_embd",
    norm="output_norm",
    head="output",
    layer="blk.{}.",
    qkv=("attn_q", "attn_k", "attn_v"),
    output="attn_output",
    gate_up=("ffn_gate", "ffn_up"),
    down="ffn_down",
    attention_norm="attn_norm",
    post_attention_norm="post_attention_norm",
    mlp_norm="ffn_norm",
    post_mlp_norm="post_ffw_norm",
    q_norm="attn_q_norm",
    k_norm="attn_k_norm",
    sinks="attn_sinks.weight",
    experts=_EXPERTS,
    # They are part of the configuration.
    ignored=r"rope_(freqs|factors_(long|short))\.weight",
)
PAIRED_NAMES = replace(GGUF_NAMES, rope_pairs=True)


# The second norm of a layer under another name, and gate and up in one matrix.
SEED_OSS_NAMES = replace(GGUF_NAMES, mlp_norm="post_attention_norm")
FUSED_NAMES = replace(GGUF_NAMES, gate_up=("ffn_up",))
GLM4_NAMES = replace(FUSED_NAMES, rope_pairs=True)
GEMMA4_NAMES = replace(
    GGUF_NAMES,
    factor="layer_output_scale.weight",
    experts=replace(
        _EXPERTS,
        shared_gate_up=GGUF_NAMES.gate_up,
        shared_down=GGUF_NAMES.down,
        expert_scales="ffn_down_exps.scale",
        router_norm="ffn_gate_inp.scale",
        norm="pre_ffw_norm_2.weight",
        post_norm="post_ffw_norm_2.weight",
        post_shared_norm="post_ffw_norm_1.weight",
    ),
    layer_embeddings=LayerEmbeddingNames(
        table="per_layer_token_embd",
        projection="per_layer_model_proj",
        projection_norm="per_layer_proj_norm",
        gate="inp_gate",
        out="proj",
        norm="post_norm",
    ),
)
# A feed-forward part without a gate.
PLAIN_NAMES = FUSED_NAMES
PLAIN_PAIRED_NAMES = replace(PLAIN_NAMES, rope_pairs=True)
_DELTA_NET = RecurrentNames(
    inputs=("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha"),
    conv="ssm_conv1d",
    output="ssm_out",
    norm="ssm_norm",
    a_log="ssm_a",
    dt_bias="ssm_dt.bias",
    flat_conv=True,
)
QWEN35_NAMES = replace(SEED_OSS_NAMES, recurrent=_DELTA_NET)
QWEN3_NEXT_NAMES = replace(
    QWEN35_NAMES, recurrent=replace(_DELTA_NET, inputs=("attn_qkv", "attn_gate", "ssm_ba"))
)
_MAMBA2 = RecurrentNames(
    inputs=("ssm_in",),
    conv="ssm_conv1d",
    output="ssm_out",
    norm="ssm_norm",
    a_log="ssm_a",
    dt_bias="ssm_dt.bias",
    skip="ssm_d",
    flat_conv=True,
    columns=True,
)
GRANITE_HYBRID_NAMES = replace(PAIRED_NAMES, recurrent=_MAMBA2)
FALCON_H1_NAMES = replace(GGUF_NAMES, mlp_norm_suffix="", recurrent=_MAMBA2)
NEMOTRON_H_NAMES = replace(
    PLAIN_NAMES,
    mlp_norm=PLAIN_NAMES.attention_norm,
    recurrent=_MAMBA2,
    experts=replace(_EXPERTS, gate_up=("ffn_up_exps",), shared_gate_up=("ffn_up_shexp",)),
)
LFM2_NAMES = replace(
    GGUF_NAMES,
    norm="token_embd_norm",
    recurrent=RecurrentNames(
        inputs=("shortconv.in_proj",),
        conv="shortconv.conv",
        output="shortconv.out_proj",
        flat_conv=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What an architecture's experts are unless a file says otherwise."""

    scoring: Scoring = "softmax"
    renormalized: bool = True
    group_best: int = 1
    spread: float = 0.0
    has_shared: bool = False
    shared_gate: bool = False
    has_own_norms: bool = False
    """Whether they stand beside a feed-forward part of all layers, as in Gemma 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One value of general.architecture, and what follows from it alone."""

    name: str
    names: Names = GGUF_NAMES
    qkv_bias: bool = False
    """Whether q, k and v must have biases. If not, they have them where a file stores them."""
    qk_norm: QkNorm | None = None
    has_qk_norm_if_stored: bool = False
    """Whether the norm exists only where a file stores it."""
    v_norm: bool = False
    score_scale: float | None = None
    """What a file need not say; None: 1 / sqrt(head_dim)."""
    centered_norms: bool = False
    norm_bias: bool = False
    activation: Activation = "silu"
    gated: bool = True
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool | None = False
    """None: where the file says so, or has one norm per layer."""
    sinks: bool = False
    experts: Mixture | None = None
    """Of files that have experts."""
    recurrent: Literal["", "delta_net", "short_conv", "mamba2"] = ""
    """What stands in the place of attention in some layers, or beside it in all."""
    parts: Literal["", "one", "both mixers"] = ""
    """Of a layer: attention or what stands in its place, then feed-forward; or one of these alone;
    or attention and, beside it, what is recurrent, then feed-forward.
    """
    takes_turns: bool = False
    """Whether value heads of a delta net take turns: see DeltaNetConfig."""
    output_gate: bool = False
    """Of attention."""
    has_predictors: bool = False
    """Whether layers that predict more tokens may follow."""
    has_two_norms: bool = False
    """Whether a parallel block has two."""
    second_norm: str = ""
    """That of attention where a file has two in a parallel block; otherwise both have one."""
    rms_eps: bool = False
    """Whether the epsilon of LayerNorm has the name of that of RMSNorm."""
    full_every: int = 0
    """Every n-th layer does not slide, unless a pattern says otherwise; 0: all slide."""
    rope_every: int = 0
    """Every n-th layer has no position embedding; 0: all have one."""
    only_sliding_ropes: bool = False
    """Whether full layers have no position embedding where others slide."""
    sliding_theta: float | None = None
    """Of sliding layers, whose rope is not scaled; 0: that of the full layers; None: one rope."""
    has_rope: bool = True
    rope_if_finetuned: bool = False
    """Whether there is a position embedding only where rope.scaling.finetuned is not false."""
    rounds_yarn: bool = True
    """Whether YaRN rounds the borders between the frequencies that stay and those it divides."""
    scales_embedding: bool = False
    """By the root of its width."""
    logit_scale: Literal["", "times", "over"] = ""
    """What logit_scale does with logits."""
    reads: frozenset[str] = frozenset()
    """Those of the keys that change what is computed which this architecture understands."""
    widest: int = 0
    """The number of layers of the one model whose scores are scaled by 1 / sqrt(dim / heads)."""

    def sources(self, config: ModelConfig) -> ModelSources:
        """The names of a GGUF file, with the biases and norms that `config` has."""
        names = self._names_of(config)
        if self.has_predictors:
            following = following_layers(r"blk\.{}\.", config.n_stored_layers)
            names = replace(names, ignored=f"{names.ignored}|{following}")
        return names.sources(config)

    def predictor(self, config: ModelConfig) -> PredictorSources | None:
        """The first block that predicts one token more; None: files never have one."""
        return IN_GGUF.sources(self._names_of(config), config) if self.has_predictors else None

    def _names_of(self, config: ModelConfig) -> Names:
        names = self.names
        if self.second_norm and config.layers[0].two_norms:
            names = replace(names, attention_norm=self.second_norm, mlp_norm=names.attention_norm)
        elif config.layers[0].parallel and not self.has_two_norms:
            names = replace(names, mlp_norm="")
        if config.fused_qkv and not self.recurrent:
            names = replace(names, qkv=("attn_qkv",))
        if config.fused_experts:
            names = replace(names, experts=replace(names.experts, gate_up=(FUSED_EXPERTS,)))
        return names
