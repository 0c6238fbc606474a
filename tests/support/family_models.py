"""Random tiny models of the families beyond Llama's nearest relatives, over their options."""

from typing import Any

from tests.support.mamba_models import MAMBA_GGUF_FAMILIES, MAMBA_MODELS
from tests.support.tiny_models import (
    DYNAMIC_ROPE,
    LLAMA3_ROPE,
    SMALL,
    YARN_BETAS,
    YARN_ROPE,
    Family,
)

_MIXER_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "original_max_position_embeddings": 32,
    "short_mscale": 1.1,
    "long_mscale": 1.2,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0],
}
_MIXER = {
    "num_local_experts": 5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
_HALF = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
_QUARTER = {**_HALF, "partial_rotary_factor": 0.25}
_LONG = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
}
MINISTRAL_ROPE = {
    **YARN_ROPE,
    **YARN_BETAS,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
_GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
# Experts whose width is no multiple of 16, so that panels are padded.
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
_GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256}
_FIVE: dict[str, Any] = {"num_hidden_layers": 5}
_WINDOW = {"sliding_window": 12}
_GPT_OSS = {
    **_WINDOW,
    "head_dim": 24,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "rope_parameters": {**YARN_ROPE, **YARN_BETAS, "truncate": False},
}
_FULL = {"sliding_window": None, "layer_types": ["full_attention"] * 3}
_GEMMA4: dict[str, Any] = {"head_dim": 16, "hidden_size_per_layer_input": 0, **_WINDOW}
_PER_LAYER = {"hidden_size_per_layer_input": 12}
_GEMMA4_E: dict[str, Any] = {
    **_GEMMA4,
    **_PER_LAYER,
    "num_hidden_layers": 5,
    "layer_types": [
        "sliding_attention",
        "full_attention",
        *2 * ["sliding_attention"],
        "full_attention",
    ],
    "global_head_dim": 24,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "final_logit_softcapping": 3.0,
}
_GEMMA4_EXPERTS = {
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 3,
    "moe_intermediate_size": 24,
}
_DELTA: dict[str, Any] = {
    "head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    # Random ones double an error in every layer or two, that of the oracle too.
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25},
}
_SHARED_EXPERT = {**_EXPERTS, "shared_expert_intermediate_size": 40}
_LFM2_MOE: dict[str, Any] = {
    **_EXPERTS,
    "num_dense_layers": 1,
    "layer_types": ["conv", "full_attention", "conv"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
_BIASES = {"attention_bias": True, "mlp_bias": True}
_TIED = {"tie_word_embeddings": True}
_UNTIED = {"tie_word_embeddings": False}

FAMILY_MODELS = {
    "ministral3": Family("Ministral3", {"head_dim": 24, "rope_parameters": MINISTRAL_ROPE}),
    "ministral3-window": Family(
        "Ministral3", {"head_dim": 24, "rope_parameters": MINISTRAL_ROPE, **_WINDOW, **_TIED}
    ),
    "smollm3": Family("SmolLM3", _FIVE),
    "smollm3-window": Family(
        "SmolLM3",
        {**_BIASES, **_WINDOW, **_UNTIED, "use_sliding_window": True, "no_rope_layers": [1, 0, 1]},
    ),
    "granite": Family(
        "Granite",
        {
            "attention_multiplier": 0.05,
            "residual_multiplier": 0.7,
            "embedding_multiplier": 3.0,
            "logits_scaling": 0.3,
        },
    ),
    "granite-biases": Family("Granite", {**_BIASES, **_TIED, "attention_multiplier": 0.25}),
    "seed_oss": Family("SeedOss", {"head_dim": 24, "attention_out_bias": True}),
    "seed_oss-biases": Family(
        "SeedOss", {"head_dim": 24, "attention_bias": False, "mlp_bias": True}
    ),
    "ernie4_5": Family("Ernie4_5", {"head_dim": 24, "use_bias": True}),
    "hunyuan": Family("HunYuanDenseV1", {"head_dim": 24, "attention_bias": True}),
    "hunyuan-alpha": Family(
        "HunYuanDenseV1",
        {
            "head_dim": 24,
            "rope_parameters": {
                "rope_type": "dynamic",
                "alpha": 1000.0,
                "factor": 1.0,
                "rope_theta": 50.0,
            },
        },
    ),
    "arcee": Family("Arcee"),
    "arcee-biases": Family("Arcee", {**_BIASES, **_TIED, "rope_parameters": LLAMA3_ROPE}),
    "phi3": Family("Phi3", _WINDOW),
    "phi3-longrope": Family(
        "Phi3", {**_TIED, "original_max_position_embeddings": 32, "rope_parameters": _LONG}
    ),
    "exaone4": Family("Exaone4", {**_WINDOW, **_FIVE}),
    "exaone4-full": Family("Exaone4", {**_FULL, **_TIED}),
    "gemma2": Family(
        "Gemma2",
        {
            "head_dim": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
            "query_pre_attn_scalar": 20,
            **_WINDOW,
        },
    ),
    "gemma2-uncapped": Family(
        "Gemma2",
        {
            "head_dim": 24,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "attention_bias": True,
            "hidden_activation": "gelu",
            **_UNTIED,
            **_WINDOW,
        },
    ),
    "gemma3": Family(
        "Gemma3Text",
        {
            "head_dim": 24,
            "num_hidden_layers": 7,
            "final_logit_softcapping": 3.0,
            "rope_parameters": _GEMMA3_ROPES,
            **_WINDOW,
        },
    ),
    "gemma3-types": Family(
        "Gemma3Text",
        {
            "head_dim": 24,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            **_WINDOW,
        },
    ),
    "gemma4": Family(
        "Gemma4Text",
        {
            **_GEMMA4,
            "num_hidden_layers": 6,
            "global_head_dim": 40,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma4-shared": Family(
        "Gemma4Text",
        {
            **_GEMMA4,
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "global_head_dim": 24,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma4-unified": Family(
        "Gemma4UnifiedText",
        {
            **_WINDOW,
            "head_dim": 16,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "global_head_dim": 24,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
        },
    ),
    "gemma4-embeddings": Family("Gemma4Text", _GEMMA4_E),
    "gemma4-embeddings-alone": Family(
        "Gemma4Text", {**_GEMMA4, "global_head_dim": 24, "hidden_activation": "gelu", **_PER_LAYER}
    ),
    "gemma4-experts": Family(
        "Gemma4Text",
        {
            **_GEMMA4,
            **_GEMMA4_EXPERTS,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "global_head_dim": 40,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
        },
    ),
    "gemma4-experts-embeddings": Family("Gemma4Text", {**_GEMMA4_E, **_GEMMA4_EXPERTS}),
    "olmo2": Family("Olmo2", {"attention_bias": True}),
    "olmo2-tied": Family("Olmo2", {**_TIED, "num_key_value_heads": 4}),
    "olmo3": Family("Olmo3", {**_WINDOW, **_FIVE}),
    "glm": Family("Glm", {"head_dim": 24, "rope_parameters": _HALF, "attention_bias": False}),
    "glm4": Family("Glm4", {"head_dim": 16}),
    "starcoder2": Family("Starcoder2", _WINDOW),
    "starcoder2-plain": Family("Starcoder2", {"use_bias": False, **_UNTIED, "hidden_act": "gelu"}),
    "stablelm": Family(
        "StableLm", {"use_qkv_bias": True, "qk_layernorm": True, "rope_parameters": _QUARTER}
    ),
    "stablelm-parallel": Family(
        "StableLm", {"use_parallel_residual": True, "rope_parameters": _HALF, **_TIED}
    ),
    "gpt_neox": Family("GPTNeoX"),
    "gpt_neox-sequential": Family(
        "GPTNeoX", {"use_parallel_residual": False, "attention_bias": False, **_TIED}
    ),
    "gpt2": Family("GPT2", _GPT2),
    "gpt2-depth": Family(
        "GPT2",
        {
            **_GPT2,
            "n_inner": 96,
            "scale_attn_by_inverse_layer_idx": True,
            "activation_function": "gelu",
        },
    ),
    "cohere": Family("Cohere", {"use_qk_norm": True, "logit_scale": 0.5}),
    "cohere-biases": Family("Cohere", {"attention_bias": True, **_UNTIED, "logit_scale": 2.0}),
    "cohere2": Family("Cohere2", {**_WINDOW, **_FIVE, "logit_scale": 2.0}),
    "nemotron": Family("Nemotron", {**_BIASES, "rope_parameters": _HALF}),
    "nemotron-tied": Family("Nemotron", {**_TIED, "head_dim": 24}),
    "phi": Family("Phi"),
    "qwen3_moe": Family("Qwen3Moe", {**_EXPERTS, "head_dim": 24, "norm_topk_prob": True}),
    "qwen3_moe-dense": Family(
        "Qwen3Moe", {**_EXPERTS, **_FIVE, "decoder_sparse_step": 2, "mlp_only_layers": [1]}
    ),
    "mixtral": Family("Mixtral", {"num_local_experts": 5, **_WINDOW}),
    "olmoe": Family("Olmoe", {"num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True}),
    "granitemoe": Family(
        "GraniteMoe",
        {"num_local_experts": 5, "residual_multiplier": 0.7, "attention_multiplier": 0.25},
    ),
    "glm4_moe": Family(
        "Glm4Moe",
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "n_group": 4,
            "topk_group": 2,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.5,
            "attention_bias": True,
            "use_qk_norm": True,
            "head_dim": 16,
        },
    ),
    "ernie4_5_moe": Family(
        "Ernie4_5_Moe",
        {"moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 24, "use_bias": True},
    ),
    "qwen2_moe": Family("Qwen2Moe", {**_EXPERTS, "shared_expert_intermediate_size": 40}),
    "gpt_oss": Family("GptOss", {**_GPT_OSS, "intermediate_size": 40}),
    "gpt_oss-blocks": Family("GptOss", _GPT_OSS, in_blocks=True),
    "gpt_oss-types": Family(
        "GptOss",
        {
            **_GPT_OSS,
            **_TIED,
            "attention_bias": False,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        },
    ),
    "qwen3_next": Family("Qwen3Next", {**_DELTA, **_SHARED_EXPERT}),
    "qwen3_next-dense": Family(
        "Qwen3Next",
        {
            **_DELTA,
            **_SHARED_EXPERT,
            "attention_bias": True,
            "linear_num_value_heads": 2,
            "linear_value_head_dim": 16,
            "linear_conv_kernel_dim": 3,
            "mlp_only_layers": [1],
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "linear_attention", "linear_attention"],
        },
    ),
    "qwen3_5": Family("Qwen3_5Text", _DELTA),
    "qwen3_5_moe": Family("Qwen3_5MoeText", {**_DELTA, **_SHARED_EXPERT}),
    "lfm2": Family(
        "Lfm2",
        {
            "full_attn_idxs": [1],
            "block_multiple_of": 32,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        },
    ),
    "lfm2-biases": Family(
        "Lfm2",
        {
            "conv_bias": True,
            "conv_L_cache": 4,
            "block_auto_adjust_ff_dim": False,
            "layer_types": ["conv", "full_attention", "conv"],
            **_UNTIED,
        },
    ),
    "phimoe": Family("Phimoe", {**_MIXER, **_WINDOW, "router_jitter_noise": 0.3}),
    "phimoe-biases": Family(
        "Phimoe",
        {**_MIXER, "attention_bias": True, "lm_head_bias": True},
        saved_as="PhiMoEForCausalLM",
    ),
    "phimoe-longrope": Family(
        "Phimoe", {**_MIXER, "rope_parameters": _MIXER_ROPE}, saved_as="PhiMoEForCausalLM"
    ),
    "apertus": Family("Apertus", {"attention_bias": True, "rope_parameters": LLAMA3_ROPE}),
    "falcon": Family("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-biases": Family(
        "Falcon",
        {
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "bias": True,
            "ffn_hidden_size": 96,
            **_UNTIED,
        },
    ),
    "falcon-multi-query": Family("Falcon"),
    "internlm3": Family(
        "InternLM3",
        {"head_dim": 16},
        saved_as="InternLM3ForCausalLM",
    ),
    "internlm3-biases": Family(
        "InternLM3",
        {**_BIASES, "head_dim": 24, "rope_parameters": DYNAMIC_ROPE},
        saved_as="InternLM3ForCausalLM",
    ),
    "lfm2_moe": Family("Lfm2Moe", {**_LFM2_MOE, "routed_scaling_factor": 1.5}),
    "lfm2_moe-biases": Family(
        "Lfm2Moe",
        {
            **_LFM2_MOE,
            **_UNTIED,
            "conv_bias": True,
            "num_dense_layers": 0,
            "use_expert_bias": False,
            "norm_topk_prob": False,
        },
    ),
    "phi-full": Family("Phi", {"rope_parameters": {**_HALF, "partial_rotary_factor": 1.0}}),
    **MAMBA_MODELS,
}

# Those that llama.cpp's converter knows, as small as their patterns of layers allow. What a file of
# GGUF cannot say is as in the models that people have.
_FOUR = {**SMALL, "num_hidden_layers": 4}
_SMALL_LONG = {**_LONG, "short_factor": [1.0, 1.1, 1.2], "long_factor": [1.0, 2.0, 4.0]}
_SMALL_GPT2 = {
    **{key: value for key, value in SMALL.items() if key != "intermediate_size"},
    "max_position_embeddings": 64,
    "n_ctx": 64,
}
_SMALL_DELTA = {
    **_DELTA,
    "head_dim": 16,
    "linear_value_head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25},
}
GGUF_FAMILIES = {
    "mistral3": Family(
        "Ministral3", {**SMALL, **_TIED, "head_dim": 16, "rope_parameters": MINISTRAL_ROPE}
    ),
    "smollm3": Family("SmolLM3", _FOUR),
    "granite": Family(
        "Granite",
        {
            **SMALL,
            **_TIED,
            "attention_multiplier": 0.05,
            "residual_multiplier": 0.7,
            "embedding_multiplier": 3.0,
            "logits_scaling": 0.3,
        },
    ),
    "seed_oss": Family("SeedOss", {**SMALL, **_TIED, "head_dim": 24}),
    "ernie4_5": Family("Ernie4_5", {**SMALL, "head_dim": 24}),
    "hunyuan": Family("HunYuanDenseV1", {**SMALL, **_TIED, "head_dim": 16}),
    "arcee": Family("Arcee", {**SMALL, **_TIED}),
    "phi3-longrope": Family(
        "Phi3",
        {
            **SMALL,
            **_TIED,
            "original_max_position_embeddings": 32,
            "rope_parameters": {**_SMALL_LONG, "partial_rotary_factor": 0.375},
        },
    ),
    "exaone4": Family("Exaone4", {**_FOUR, **_TIED, **_WINDOW}),
    "gemma2": Family(
        "Gemma2",
        {
            **SMALL,
            **_WINDOW,
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Family(
        "Gemma3Text",
        {
            **SMALL,
            **_WINDOW,
            "num_hidden_layers": 6,
            "head_dim": 24,
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                **_GEMMA3_ROPES,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "gemma4": Family(
        "Gemma4Text",
        {
            **SMALL,
            **_GEMMA4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 24,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma4-embeddings": Family(
        "Gemma4Text",
        {
            **_FOUR,
            **_GEMMA4,
            "hidden_size_per_layer_input": 4,
            "layer_types": 2 * ["sliding_attention", "full_attention"],
            "head_dim": 8,
            "global_head_dim": 16,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma4-experts": Family(
        "Gemma4Text",
        {
            **SMALL,
            **_GEMMA4,
            **_GEMMA4_EXPERTS,
            "num_experts": 4,
            "top_k_experts": 2,
            "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 24,
        },
    ),
    "olmo3": Family("Olmo3", {**_FOUR, **_TIED, **_WINDOW}),
    "glm4": Family("Glm4", {**SMALL, **_TIED, "head_dim": 16}),
    "starcoder2": Family("Starcoder2", SMALL),
    "stablelm": Family(
        "StableLm",
        {
            **SMALL,
            **_TIED,
            "use_parallel_residual": True,
            "use_qkv_bias": True,
        },
    ),
    "gptneox": Family("GPTNeoX", {**SMALL, **_TIED}),
    "gpt2": Family("GPT2", _SMALL_GPT2),
    "command-r": Family("Cohere", {**SMALL, "logit_scale": 2.0}),
    "cohere2": Family("Cohere2", {**_FOUR, **_WINDOW, "logit_scale": 2.0}),
    "nemotron": Family("Nemotron", {**SMALL, **_TIED, "rope_parameters": _HALF}),
    "qwen3moe": Family(
        "Qwen3Moe", {**SMALL, **_TIED, **_EXPERTS, "head_dim": 16, "norm_topk_prob": True}
    ),
    "qwen2moe": Family("Qwen2Moe", {**SMALL, **_EXPERTS, "shared_expert_intermediate_size": 32}),
    "mixtral": Family(
        "Mixtral",
        {
            **SMALL,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": None,
        },
    ),
    "olmoe": Family("Olmoe", {**SMALL, **_TIED, "num_experts": 4, "num_experts_per_tok": 2}),
    "granitemoe": Family(
        "GraniteMoe",
        {
            **SMALL,
            **_TIED,
            "num_local_experts": 4,
            "attention_multiplier": 0.25,
            "residual_multiplier": 0.7,
            "embedding_multiplier": 3.0,
            "logits_scaling": 0.3,
        },
    ),
    "glm4moe": Family(
        "Glm4Moe",
        {
            **SMALL,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "head_dim": 16,
            "num_nextn_predict_layers": 0,
        },
    ),
    "gpt-oss-mxfp4": Family(
        "GptOss", {**SMALL, **_GPT_OSS, "head_dim": 16, "num_local_experts": 4}, in_blocks=True
    ),
    "ernie4_5-moe": Family(
        "Ernie4_5_Moe",
        {
            **SMALL,
            **_TIED,
            "intermediate_size": 64,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 32,
            "head_dim": 16,
        },
    ),
    "qwen35": Family("Qwen3_5Text", {**SMALL, **_SMALL_DELTA, **_TIED}),
    "qwen35moe": Family(
        "Qwen3_5MoeText",
        {**SMALL, **_SMALL_DELTA, **_EXPERTS, "shared_expert_intermediate_size": 32},
    ),
    "qwen3next": Family(
        "Qwen3Next",
        {**SMALL, **_SMALL_DELTA, **_EXPERTS, "shared_expert_intermediate_size": 32},
    ),
    "lfm2": Family("Lfm2", {**SMALL, "full_attn_idxs": [1], "block_multiple_of": 32}),
    "phimoe": Family(
        "Phimoe",
        {
            **SMALL,
            "num_local_experts": 4,
            "attention_bias": True,
            "lm_head_bias": True,
            # What the converter takes the factor for.
            "rope_parameters": {**_MIXER_ROPE, "short_mscale": 1.6**0.5, "long_mscale": 1.6**0.5},
        },
        saved_as="PhiMoEForCausalLM",
    ),
    "apertus": Family("Apertus", {**SMALL, "rope_parameters": LLAMA3_ROPE}),
    "falcon": Family(
        "Falcon",
        {
            **SMALL,
            "max_position_embeddings": 2048,
            "new_decoder_architecture": True,
            "num_kv_heads": 1,
        },
    ),
    "falcon-multi-query": Family(
        "Falcon", {**SMALL, "max_position_embeddings": 2048, "num_kv_heads": 1}
    ),
    "internlm3": Family(
        "InternLM3", {**SMALL, **_TIED, "head_dim": 16}, saved_as="InternLM3ForCausalLM"
    ),
    "olmo2": Family("Olmo2", {**SMALL, **_TIED}),
    # Its converter takes the width for the context, and an epsilon of its own.
    "chatglm": Family(
        "Glm",
        {
            **SMALL,
            **_TIED,
            "hidden_size": 64,
            "head_dim": 32,
            "attention_bias": True,
            "rms_norm_eps": 1e-5,
        },
    ),
    "lfm2moe": Family(
        "Lfm2Moe",
        {
            **SMALL,
            **_LFM2_MOE,
            "moe_intermediate_size": 32,
            "layer_types": ["conv", "full_attention"],
        },
    ),
    "phi2": Family("Phi", {**SMALL, **_TIED, "intermediate_size": 128, "num_key_value_heads": 2}),
    **MAMBA_GGUF_FAMILIES,
}
