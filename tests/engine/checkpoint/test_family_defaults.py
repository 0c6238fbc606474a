"""A config.json that says only the sizes means the same as in transformers, for the families that
test_config_defaults.py does not look at key by key.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.config_json import model_config
from engine.checkpoint.families.known import FAMILIES
from engine.checkpoint.recurrent import DeltaNetConfig, Mamba2Config, Recurrent
from engine.checkpoint.ropes import Llama3Scaling, YarnScaling

_CLASSES = {
    "GPT2LMHeadModel": "GPT2Config",
    "Gemma3ForCausalLM": "Gemma3TextConfig",
    "Gemma4ForCausalLM": "Gemma4TextConfig",
    "Gemma4UnifiedForCausalLM": "Gemma4UnifiedTextConfig",
    "Qwen3_5ForCausalLM": "Qwen3_5TextConfig",
    "Qwen3_5MoeForCausalLM": "Qwen3_5MoeTextConfig",
    "PhiMoEForCausalLM": "PhimoeConfig",
}
_ELSEWHERE = {f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3")}
_EPS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_epsilon")
# Divisible by 32, the number of key heads that a missing key means in some families.
SIZES = {
    "vocab_size": 300,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 32,
}
# Ministral 3 without a word about rope has YaRN there; every file says what it is. Gemma 4 without
# a word about them has embeddings of each layer.
_SAID: dict[str, dict[str, Any]] = {
    "Gemma4ForCausalLM": {"hidden_size_per_layer_input": 0},
    # Of attention alone there must be one layer.
    "GraniteMoeHybridForCausalLM": {
        "mamba_n_heads": 16,
        "layer_types": ["full_attention", *6 * ["linear_attention"]],
    },
    "FalconH1ForCausalLM": {"mamba_n_heads": 16},
    "NemotronHForCausalLM": {
        "layers_block_type": ["full_attention", *6 * ["linear_attention"]],
    },
    "Ministral3ForCausalLM": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
}


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - _ELSEWHERE))
def test_missing_keys_mean_what_transformers_takes(tmp_path: Path, name: str) -> None:
    import transformers

    family = FAMILIES[name]
    said = {family.key(key): size for key, size in SIZES.items()} | _SAID.get(name, {})
    if name == "GPT2LMHeadModel":
        del said["n_inner"]
    (tmp_path / "config.json").write_text(json.dumps({**said, "architectures": [name]}), "utf-8")
    class_name = _CLASSES.get(name, name.replace("ForCausalLM", "Config"))
    theirs = getattr(transformers, class_name)(**said)
    theirs.allow_global_per_layer_attribute_access = True
    ours = model_config(tmp_path)
    attention = next(layer.attention for layer in ours.layers if layer.recurrent is None)
    n_heads = theirs.num_attention_heads
    n_kv_heads = 1 if getattr(theirs, "multi_query", False) else n_heads
    assert (attention.n_heads, attention.n_kv_heads, attention.head_dim) == (
        n_heads,
        getattr(theirs, "num_key_value_heads", None) or n_kv_heads,
        getattr(theirs, "head_dim", None) or theirs.hidden_size // n_heads,
    )
    (eps,) = (getattr(theirs, key) for key in _EPS if hasattr(theirs, key))
    assert ours.norm_eps == eps
    assert ours.max_seq_len == theirs.max_position_embeddings
    assert ours.tie_embeddings == theirs.tie_word_embeddings
    windows: dict[int, int] = {}
    recurrent: dict[int, Recurrent | None] = {}
    for place, layer in zip(ours.stored_places, ours.layers, strict=True):
        windows[place] = max(layer.attention.window, windows.get(place, 0))
        recurrent[place] = layer.recurrent or recurrent.get(place)
    assert list(windows.values()) == _windows(theirs)
    assert list(recurrent.values()) == _recurrent(theirs)
    for rope, parameters in zip(ours.ropes, _ropes(theirs), strict=True):
        assert rope.theta == parameters["rope_theta"]
        if parameters["rope_type"] == "proportional":  # of heads of their own width
            continue
        partial = parameters.get("partial_rotary_factor", 1.0)
        assert rope.rotary_dim == int(attention.head_dim * partial)
        assert rope.scaling == _scaling(parameters)


def _windows(config: Any) -> list[int]:
    window = getattr(config, "sliding_window", None) or 0
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


def _recurrent(config: Any) -> list[Recurrent | None]:
    recurrent: Recurrent | None = None
    if hasattr(config, "linear_num_key_heads"):
        recurrent = DeltaNetConfig(
            n_k_heads=config.linear_num_key_heads,
            n_v_heads=config.linear_num_value_heads,
            k_dim=config.linear_key_head_dim,
            v_dim=config.linear_value_head_dim,
            kernel=config.linear_conv_kernel_dim,
        )
    if hasattr(config, "mamba_n_heads"):
        recurrent = Mamba2Config(
            n_heads=config.mamba_n_heads,
            n_groups=config.mamba_n_groups,
            head_dim=config.mamba_d_head,
            state_dim=config.mamba_d_state,
            kernel=config.mamba_d_conv,
            conv_bias=config.mamba_conv_bias,
            dt_limits=config.time_step_limit,
            norm="gate_first" if getattr(config, "mamba_rms_norm", True) else "",
        )
    if hasattr(config, "mamba_num_heads"):
        recurrent = Mamba2Config(
            n_heads=config.mamba_num_heads,
            n_groups=config.n_groups,
            head_dim=config.mamba_head_dim,
            state_dim=config.ssm_state_size,
            kernel=config.conv_kernel,
            conv_bias=config.use_conv_bias,
            dt_limits=(config.time_step_min, math.inf),
        )
    kinds = getattr(config, "layer_types", None) or [""] * config.num_hidden_layers
    are_recurrent = ("linear_attention", "conv", "hybrid")
    return [recurrent if kind in are_recurrent else None for kind in kinds]


def _scaling(parameters: dict[str, Any]) -> YarnScaling | Llama3Scaling | None:
    if parameters["rope_type"] == "default":
        return None
    factor = parameters["factor"]
    if parameters["rope_type"] == "llama3":
        return Llama3Scaling(
            factor=factor,
            low_freq_factor=parameters["low_freq_factor"],
            high_freq_factor=parameters["high_freq_factor"],
            original_max_seq_len=parameters["original_max_position_embeddings"],
        )
    return YarnScaling(
        factor=factor,
        original_max_seq_len=parameters["original_max_position_embeddings"],
        attention_factor=0.1 * math.log(factor) + 1.0,
        beta_fast=parameters["beta_fast"],
        beta_slow=parameters["beta_slow"],
        truncate=parameters["truncate"],
    )


def _ropes(config: Any) -> list[dict[str, Any]]:
    """That of all layers, or of full and of sliding ones."""
    if not hasattr(config, "rope_parameters"):
        return []
    parameters = config.rope_parameters
    kinds = ("full_attention", "sliding_attention")
    return [parameters[kind] for kind in kinds] if kinds[0] in parameters else [parameters]
