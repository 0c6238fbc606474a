"""Every field of the configurations of transformers that would change the arithmetic is understood
or refused by name: none is ignored.

The configurations' classes say which fields there are. Each gets unusual values, one at a time:
either the logits are those of transformers then, or the error names the field.
"""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from engine import ModelLoadError
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config_of
from engine.checkpoint.families.known import FAMILIES
from engine.checkpoint.unknown_keys import HARMLESS, Watched
from engine.files import JsonObject
from tests.engine.model.test_model_parity import loaded, logits_after, oracle_logits, prompt
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import FAMILIES as LLAMA_MODELS
from tests.support.tiny_models import SIZES, Family, architecture_of, name_architecture, oracle

# What ends a text is not arithmetic.
ENDS = {"bos_token_id", "eos_token_id"}
# What transformers works out of other fields, and a file may leave out.
DERIVED = ("layer_types", "no_rope_layers")
WINDOW = {"use_sliding_window": True, "sliding_window": 9}
_PLAIN = {"rope_type": "default", "rope_theta": 70.0}
# The ropes of two kinds of layers.
_TWO = {"full_attention": _PLAIN, "sliding_attention": {**_PLAIN, "rope_theta": 30.0}}
_ROPES = [
    _PLAIN,
    {**_PLAIN, "rope_type": "linear", "factor": 3.0},
    {**_PLAIN, "partial_rotary_factor": 0.5},
]
_TRUTHS = [False, True]
_FUNCTIONS = ["gelu", "relu", "silu"]
_KINDS = ["full_attention", "sliding_attention"]
_DELTA_KINDS = [["full_attention", "linear_attention", "linear_attention"]]
# Sizes and the like, which differ from the usual ones all at once.
SMALL: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 80,
    "layer_norm_eps": 0.1,
    "layer_norm_epsilon": 0.1,
    "mamba_n_heads": 6,
    "max_position_embeddings": 64,
    "n_embd": 96,
    "n_head": 2,
    "n_inner": 40,
    "n_layer": 2,
    "n_positions": 64,
    "norm_eps": 0.1,
    "norm_epsilon": 0.1,
    "num_attention_heads": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "rms_norm_eps": 0.1,
    "vocab_size": 352,
}
UNUSUAL: dict[str, list[Any]] = {
    "activation": _FUNCTIONS,
    "activation_function": _FUNCTIONS,
    "add_cross_attention": _TRUTHS,
    "alibi": _TRUTHS,
    "attention_bias": _TRUTHS,
    "attention_in_multiplier": [0.7],
    "attention_k_eq_v": _TRUTHS,
    "attention_multiplier": [0.3],
    "attention_out_bias": _TRUTHS,
    "attention_out_multiplier": [0.6],
    "attn_logit_softcapping": [1.5, None],
    "bias": _TRUTHS,
    "block_auto_adjust_ff_dim": _TRUTHS,
    "block_ffn_dim_multiplier": [0.5],
    "block_multiple_of": [48],
    "clip_qkv": [0.5],
    "conv_L_cache": [2],
    "conv_bias": _TRUTHS,
    "conv_kernel": [3],
    "decoder_sparse_step": [2],
    "embedding_multiplier": [2.0],
    "enable_moe_block": _TRUTHS,
    "expand": [3],
    "ffn_hidden_size": [80],
    "final_logit_softcapping": [2.0, None],
    "first_k_dense_replace": [2],
    "full_attn_idxs": [[0, 2]],
    "head_dim": [32],
    "hidden_act": _FUNCTIONS,
    "hidden_activation": _FUNCTIONS,
    "hidden_size_per_layer_input": [16],
    "key_multiplier": [0.8],
    "layer_types": [[*_KINDS, "full_attention"]],
    "layers_block_type": [["full_attention", "mlp", "mlp", "linear_attention"]],
    "linear_conv_kernel_dim": [3],
    "linear_key_head_dim": [32],
    "linear_num_key_heads": [4],
    "linear_num_value_heads": [2],
    "linear_value_head_dim": [16],
    "lm_head_bias": _TRUTHS,
    "lm_head_multiplier": [1.7],
    "logit_scale": [0.7],
    "logits_scaling": [0.4],
    "mamba_conv_bias": _TRUTHS,
    "mamba_d_conv": [3],
    "mamba_d_head": [32],
    "mamba_d_ssm": [None, 192],
    "mamba_d_state": [32],
    "mamba_expand": [1],
    "mamba_head_dim": [32],
    "mamba_hidden_act": _FUNCTIONS,
    "mamba_n_groups": [1, 2],
    "mamba_norm_before_gate": _TRUTHS,
    "mamba_num_heads": [4],
    "mamba_proj_bias": _TRUTHS,
    "mamba_rms_norm": _TRUTHS,
    "max_window_layers": [1],
    "mlp_bias": _TRUTHS,
    "mlp_hidden_act": _FUNCTIONS,
    "mlp_multipliers": [[1.4, 0.6], None],
    "mlp_only_layers": [[1]],
    "moe_intermediate_size": [40],
    "moe_k": [2],
    "moe_latent_size": [16],
    "moe_layer_end_index": [1],
    "moe_layer_interval": [2],
    "moe_layer_start_index": [2],
    "moe_norm_min": [0.9],
    "moe_num_experts": [4],
    "moe_num_shared_experts": [1],
    "moe_shared_expert_intermediate_size": [24],
    "moe_shared_expert_overlap": _TRUTHS,
    "multi_query": _TRUTHS,
    "n_group": [2],
    "n_groups": [1],
    "n_routed_experts": [12],
    "n_shared_experts": [1],
    "new_decoder_architecture": _TRUTHS,
    "no_rope_layer_interval": [2],
    "no_rope_layers": [[0, 1, 1]],
    "norm_topk_prob": _TRUTHS,
    "num_dense_layers": [2],
    "num_experts": [4],
    "num_experts_per_tok": [2],
    "num_kv_heads": [1],
    "num_kv_shared_layers": [1],
    "num_ln_in_parallel_attn": [1],
    "num_local_experts": [4],
    "original_max_position_embeddings": [32],
    "parallel_attn": _TRUTHS,
    "position_embedding_type": ["rope", "nope", "learned"],
    "projectors_bias": _TRUTHS,
    "qk_layernorm": _TRUTHS,
    "qkv_bias": _TRUTHS,
    "query_pre_attn_scalar": [40],
    "residual_multiplier": [0.6],
    "rope_parameters": _ROPES,
    "routed_scaling_factor": [0.5],
    "router_jitter_noise": [0.2],
    "scale_attn_by_inverse_layer_idx": _TRUTHS,
    "scale_attn_weights": _TRUTHS,
    "shared_expert_intermediate_size": [24],
    "shared_intermediate_size": [24],
    "sliding_window": [5],
    "sliding_window_pattern": [2],
    "tie_word_embeddings": _TRUTHS,
    "time_step_limit": [[0.2, 0.9]],
    "time_step_min": [0.4],
    "ssm_in_multiplier": [0.6],
    "ssm_multipliers": [[1.4, 0.6, 1.2, 0.8, 1.6], None],
    "ssm_out_multiplier": [1.3],
    "ssm_state_size": [32],
    "swiglu_alpha": [1.5],
    "swiglu_limit": [5.0],
    "top_k_experts": [2],
    "topk_group": [3],
    "use_bias": _TRUTHS,
    "use_bidirectional_attention": [True],
    "use_conv_bias": _TRUTHS,
    "use_double_wide_mlp": _TRUTHS,
    "use_expert_bias": _TRUTHS,
    "use_parallel_residual": _TRUTHS,
    "use_qk_norm": _TRUTHS,
    "use_qkv_bias": _TRUTHS,
    "use_sliding_window": _TRUTHS,
    "vocab_size_per_layer_input": [300],
}
# Where a field takes other values, or means something only beside others.
OTHER_VALUES: dict[tuple[str, str], list[Any]] = {
    # transformers refuses one without the other.
    ("InternLM3", "attention_bias"): [],
    ("InternLM3", "mlp_bias"): [],
    ("Gemma3Text", "rope_parameters"): [_TWO],
    ("Gemma4Text", "rope_parameters"): [_TWO],
    # Without the original length, transformers fails at the temperature by position.
    ("Ministral3", "rope_parameters"): [
        {**rope, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.3}
        for rope in _ROPES[:2]
    ],
    ("Phimoe", "rope_parameters"): [_PLAIN, {**_PLAIN, "partial_rotary_factor": 0.5}],
    ("Phi3", "rope_parameters"): [_PLAIN, {**_PLAIN, "partial_rotary_factor": 0.5}],
    ("Gemma4UnifiedText", "num_kv_shared_layers"): [],  # transformers fails at them
    ("Gemma4UnifiedText", "rope_parameters"): [_TWO],
    ("Gemma4UnifiedText", "use_bidirectional_attention"): ["all", "vision"],
    ("Gemma4Text", "use_bidirectional_attention"): ["all", "vision"],
    ("Lfm2", "layer_types"): [["conv", "full_attention", "conv"]],
    ("Lfm2Moe", "layer_types"): [["full_attention", "conv", "conv"]],
    ("FalconH1", "mamba_d_head"): [24],
    ("FalconH1", "mamba_expand"): [],  # nothing beside mamba_d_ssm
    ("GraniteMoeHybrid", "layer_types"): _DELTA_KINDS,
    ("Qwen3Next", "layer_types"): _DELTA_KINDS,
    ("Qwen3_5Text", "layer_types"): _DELTA_KINDS,
    ("Qwen3_5MoeText", "layer_types"): _DELTA_KINDS,
}
BESIDE: dict[str, dict[str, Any]] = {
    "mamba_d_ssm": {"mamba_n_heads": 4, "mamba_d_head": "auto"},
    "mamba_norm_before_gate": {"mamba_rms_norm": True},
    "enable_moe_block": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 40},
    "hidden_size_per_layer_input": {"vocab_size_per_layer_input": SIZES["vocab_size"]},
    "mamba_d_head": {"mamba_n_heads": 4},
    "mamba_expand": {"mamba_n_heads": 4},
    "max_window_layers": WINDOW,
    "layer_types": {"num_hidden_layers": 3, **WINDOW},
    "no_rope_layers": {"num_hidden_layers": 3},
    "sliding_window": {"use_sliding_window": True},
    "use_sliding_window": {"sliding_window": 9},
}


def first_of(architecture: str) -> Family:
    """The first model that the tests build of an architecture."""
    models = (*LLAMA_MODELS.values(), *FAMILY_MODELS.values())
    return next(each for each in models if architecture_of(each) == architecture)


def fields_of(family: Family) -> set[str]:
    made = getattr(transformers, f"{family.name}Config")
    inherited = {each.name for each in dataclasses.fields(transformers.PreTrainedConfig)}
    return {each.name for each in dataclasses.fields(made)} - inherited


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_no_field_is_ignored(architecture: str, tmp_path: Path) -> None:
    family = first_of(architecture)
    fields = fields_of(family)
    untested = fields - HARMLESS - ENDS - UNUSUAL.keys() - SMALL.keys()
    assert untested == set(), "give them unusual values, or say that they are harmless"
    usual = config_of(family, {})
    small = {key: value for key, value in SMALL.items() if key in fields}
    if "layer_types" in family.options:  # there is one for each layer
        small.pop("num_hidden_layers")
    check(family, "", small, tmp_path)
    for field in sorted(fields & UNUSUAL.keys()):
        beside = {key: value for key, value in BESIDE.get(field, {}).items() if key in fields}
        for value in OTHER_VALUES.get((family.name, field), UNUSUAL[field]):
            if value != usual.get(field):
                check(family, field, {**beside, field: value}, tmp_path)


def check(family: Family, field: str, given: dict[str, Any], path: Path) -> None:
    options = copy.deepcopy(given)  # transformers writes into ropes
    config = config_of(family, options)
    ours = read_or_refused(config)
    if isinstance(ours, str):
        assert field in ours, options
        return
    if not {*DERIVED} & {*options, *family.options}:
        fewer = {key: value for key, value in config.items() if key not in DERIVED}
        assert model_config_of(JsonObject(fewer, "config.json")) == ours, options
    model = oracle(family, **options)
    model.save_pretrained(path)
    name_architecture(path, family)
    token_ids = prompt(24)
    expected = oracle_logits(model, token_ids)
    logits = logits_after(loaded(path), token_ids, n_prefill=0)
    tolerance = 1e-4 * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=tolerance, err_msg=str(options))


def read_or_refused(config: dict[str, Any]) -> ModelConfig | str:
    """The words of the refusal, if it is one."""
    try:
        return model_config_of(JsonObject(config, "config.json"))
    except ModelLoadError as error:
        return str(error)


def config_of(family: Family, options: dict[str, Any]) -> dict[str, Any]:
    """As transformers writes it."""
    made = getattr(transformers, f"{family.name}Config")
    config = made(**{**SIZES, **family.options, **options}).to_dict()
    read: dict[str, Any] = json.loads(json.dumps(config))
    return {**read, "architectures": [architecture_of(family)]}


# Names of the number of experts, of which the first that is there counts.
COUNTS = {"n_routed_experts", "moe_num_experts", "num_experts", "num_local_experts", "moe_k"}


def test_a_key_that_a_family_claims_to_understand_is_read() -> None:
    """`reads` only silences the refusal; the family must ask for the key itself."""
    for architecture, family in FAMILIES.items():
        first = first_of(architecture)
        config = config_of(first, {})
        mixed = {"enable_moe_block": True, **BESIDE["enable_moe_block"]}
        with_experts = config_of(first, mixed) if "enable_moe_block" in config else config
        asked: set[str] = set()
        for left_out, said in ((set(), config), (COUNTS, config), (set(), with_experts)):
            kept = {key: value for key, value in said.items() if key not in left_out}
            watched = Watched(kept)
            model_config_of(JsonObject(watched, "config.json"))
            asked |= watched.asked
        assert family.reads - asked == set(), architecture


def test_an_unknown_architecture_is_told_what_the_nearest_one_does_not_know() -> None:
    config = config_of(first_of("LlamaForCausalLM"), {})
    config |= {"architectures": ["LlamasForCausalLM"], "gate_of_everything": 2, "clip_qkv": 3.0}
    message = "nearest family is LlamaForCausalLM, which does not know clip_qkv, gate_of_everything"
    with pytest.raises(ModelLoadError, match=message):
        model_config_of(JsonObject(config, "config.json"))
