"""Random tiny models of the families with Mamba 2, over their options."""

from typing import Any

from tests.support.tiny_models import SMALL, Family

_TIED = {"tie_word_embeddings": True}
_BIASES = {"attention_bias": True, "mlp_bias": True}
_GRANITE_HYBRID: dict[str, Any] = {
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 40,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.25,
    "embedding_multiplier": 3.0,
    "logits_scaling": 0.3,
}
_NEMOTRON_H: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "mlp", "full_attention"],
    "mamba_num_heads": 6,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 24,
    "head_dim": 24,
}
_NEMOTRON_H_EXPERTS: dict[str, Any] = {
    "layers_block_type": ["linear_attention", "moe", "mlp", "full_attention"],
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
}
_FALCON_H1: dict[str, Any] = {
    "num_hidden_layers": 2,
    "head_dim": 24,
    "mamba_d_ssm": 96,
    "mamba_n_heads": 6,
    "mamba_n_groups": 2,
    "mamba_d_state": 24,
}
_MULTIPLIERS: dict[str, Any] = {
    "embedding_multiplier": 3.0,
    "lm_head_multiplier": 0.4,
    "key_multiplier": 0.3,
    "attention_in_multiplier": 1.3,
    "attention_out_multiplier": 0.9,
    "ssm_in_multiplier": 1.2,
    "ssm_out_multiplier": 0.7,
    "ssm_multipliers": [0.6, 1.7, 0.8, 1.4, 0.5],
    "mlp_multipliers": [0.7, 0.4],
}
# The converter multiplies weights by them: with powers of two it rounds nothing.
_POWERS: dict[str, Any] = {
    "embedding_multiplier": 4.0,
    "lm_head_multiplier": 0.5,
    "key_multiplier": 0.25,
    "attention_in_multiplier": 2.0,
    "attention_out_multiplier": 0.5,
    "ssm_in_multiplier": 0.5,
    "ssm_out_multiplier": 2.0,
    "ssm_multipliers": [0.5, 2.0, 4.0, 0.25, 0.5],
    "mlp_multipliers": [2.0, 0.25],
}

MAMBA_MODELS = {
    "granite_hybrid": Family("GraniteMoeHybrid", _GRANITE_HYBRID),
    "granite_hybrid-dense": Family(
        "GraniteMoeHybrid",
        {
            **_GRANITE_HYBRID,
            **_TIED,
            "num_local_experts": 0,
            "position_embedding_type": "rope",
            "mamba_n_groups": 2,
            "mamba_d_conv": 3,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "time_step_limit": [0.3, 1.5],
        },
    ),
    "nemotron_h": Family("NemotronH", {**_NEMOTRON_H, **_NEMOTRON_H_EXPERTS}),
    "nemotron_h-biases": Family(
        "NemotronH",
        {
            **_NEMOTRON_H,
            "layers_block_type": ["mlp", "full_attention", "linear_attention", "mlp", "mlp"],
            "use_bias": True,
            "mlp_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 3,
            "time_step_min": 0.5,
        },
    ),
    "nemotron_h-experts": Family(
        "NemotronH",
        {
            **_NEMOTRON_H,
            **_NEMOTRON_H_EXPERTS,
            "layers_block_type": ["moe", "linear_attention", "full_attention", "moe"],
            "n_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 1.7,
        },
    ),
    "nemotron_h-latent": Family(
        "NemotronH",
        {
            **_NEMOTRON_H,
            **_NEMOTRON_H_EXPERTS,
            "mlp_bias": True,
            "moe_latent_size": 16,
            "norm_topk_prob": False,
        },
    ),
    "falcon_h1": Family("FalconH1", {**_FALCON_H1, **_MULTIPLIERS}),
    "falcon_h1-norm": Family(
        "FalconH1",
        {**_FALCON_H1, **_MULTIPLIERS, **_TIED, "attention_bias": True, "mamba_rms_norm": True},
    ),
    "falcon_h1-biases": Family(
        "FalconH1",
        {
            **_FALCON_H1,
            **_BIASES,
            "mamba_d_ssm": None,
            "mamba_n_heads": 4,
            "mamba_d_conv": 3,
            "mamba_conv_bias": False,
            "mamba_proj_bias": True,
            "projectors_bias": True,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
            "time_step_limit": [0.3, 1.5],
        },
    ),
}

# See GGUF_FAMILIES.
MAMBA_GGUF_FAMILIES = {
    "granitehybrid": Family(
        "GraniteMoeHybrid",
        {
            **SMALL,
            **_TIED,
            **_GRANITE_HYBRID,
            "layer_types": ["linear_attention", "full_attention"],
            "mamba_n_heads": 4,
            "mamba_n_groups": 2,
            "mamba_d_state": 16,
            "shared_intermediate_size": 64,
        },
    ),
    "falcon-h1": Family(
        "FalconH1", {**SMALL, **_FALCON_H1, **_POWERS, "mamba_d_ssm": 64, "mamba_n_heads": 4}
    ),
    "falcon-h1-norm": Family(
        "FalconH1",
        {
            **SMALL,
            **_FALCON_H1,
            **_POWERS,
            "num_hidden_layers": 1,
            "mamba_d_ssm": 32,
            "mamba_n_heads": 2,
            "mamba_rms_norm": True,
            "mamba_norm_before_gate": False,
        },
    ),
    "nemotron_h": Family(
        "NemotronH",
        {
            **SMALL,
            **_NEMOTRON_H,
            "mamba_num_heads": 4,
            "layers_block_type": ["linear_attention", "mlp", "full_attention"],
            "time_step_min": 1e-9,
        },
    ),
    "nemotron_h_moe": Family(
        "NemotronH",
        {
            **SMALL,
            **_NEMOTRON_H,
            **_NEMOTRON_H_EXPERTS,
            "mamba_num_heads": 4,
            "layers_block_type": ["linear_attention", "moe", "full_attention"],
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 64,
            "time_step_min": 1e-9,
        },
    ),
    "nemotron_h_moe-latent": Family(
        "NemotronH",
        {
            **SMALL,
            **_NEMOTRON_H,
            **_NEMOTRON_H_EXPERTS,
            "mamba_num_heads": 4,
            "layers_block_type": ["linear_attention", "full_attention", "moe"],
            "moe_latent_size": 16,
            "time_step_min": 1e-9,
        },
    ),
}
