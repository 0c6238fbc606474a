"""What a missing key of config.json means: the same as in transformers, for every family."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine import ModelLoadError
from engine.checkpoint.config_json import model_config

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3")
# Divisible by 8 and 32, the numbers of key/value heads that a missing key means.
SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 512,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 64,
}
OPTIONAL: dict[str, Any] = {
    "num_key_value_heads": 16,
    "head_dim": 24,
    "hidden_act": "silu",
    "max_position_embeddings": 4000,
    "rms_norm_eps": 1e-3,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 700.0, "factor": 1.0},
    "attention_bias": True,
    "mlp_bias": True,
    "use_sliding_window": True,
    "sliding_window": 40,
    "max_window_layers": 1,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
# Of every class: nothing that a decoder computes with. A new key of transformers is in no list.
WITHOUT_MEANING = {
    "transformers_version", "output_hidden_states", "return_dict", "dtype",
    "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type",
    "initializer_range", "use_cache", "pad_token_id", "pretraining_tp", "attention_dropout",
}  # fmt: skip
# The architecture chooses the class. Which tokens end a text the tokenizer's files say: a default
# of the class is the vocabulary of the family's first model.
NOT_FOLLOWED = {"architectures", "bos_token_id", "eos_token_id"}


def config_class(family: str) -> Any:
    import transformers

    return getattr(transformers, f"{family}Config")


def keys_of(family: str) -> list[str]:
    return [field.name for field in dataclasses.fields(config_class(family))]


CASES = [
    (family, key) for family in FAMILIES for key in keys_of(family) if key in {**OPTIONAL, **SIZES}
]


def written(path: Path, family: str, changes: dict[str, Any], left_out: str = "") -> Path:
    known = keys_of(family)
    values = {**SIZES, **{key: value for key, value in OPTIONAL.items() if key in known}}
    values |= {"architectures": [f"{family}ForCausalLM"], "model_type": family.lower(), **changes}
    values.pop(left_out, None)
    (path / "config.json").write_text(json.dumps(values), "utf-8")
    return path


def ours(path: Path) -> dict[str, Any]:
    config = model_config(path)
    attention = config.layers[0].attention
    return {
        "heads": (attention.n_heads, attention.n_kv_heads, attention.head_dim),
        "eps": config.norm_eps,
        "context": config.max_seq_len,
        "tied": config.tie_embeddings,
        "theta": config.ropes[0].theta,
        "factor": 1.0 if config.ropes[0].scaling else None,
        "windows": [layer.attention.window for layer in config.layers],
        "biases": {(layer.attention.o_bias, layer.mlp.bias) for layer in config.layers},
    }


def theirs(path: Path, family: str) -> dict[str, Any]:
    config = config_class(family).from_pretrained(path)
    n_heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", config.hidden_size // n_heads)
    window = getattr(config, "sliding_window", None) or 0
    # Mistral has no kinds of layers: all slide where there is a window.
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return {
        "heads": (n_heads, config.num_key_value_heads, head_dim),
        "eps": config.rms_norm_eps,
        "context": config.max_position_embeddings,
        "tied": config.tie_word_embeddings,
        "theta": config.rope_parameters["rope_theta"],
        "factor": config.rope_parameters.get("factor"),
        "windows": [window if kind == "sliding_attention" else 0 for kind in kinds],
        "biases": {(getattr(config, "attention_bias", False), getattr(config, "mlp_bias", False))},
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_transformers_is_known_here(family: str) -> None:
    known = {*SIZES, *OPTIONAL, *WITHOUT_MEANING, *NOT_FOLLOWED}
    assert set(keys_of(family)) <= known


@pytest.mark.parametrize(("family", "key"), CASES)
def test_a_missing_key_means_what_transformers_takes(tmp_path: Path, family: str, key: str) -> None:
    written(tmp_path, family, {}, left_out=key)
    if key in SIZES:
        with pytest.raises(ModelLoadError, match=f"{key}: missing"):
            model_config(tmp_path)
    else:
        assert ours(tmp_path) == theirs(tmp_path, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_them_may_be_missing(tmp_path: Path, family: str) -> None:
    values = {**SIZES, "architectures": [f"{family}ForCausalLM"], "model_type": family.lower()}
    (tmp_path / "config.json").write_text(json.dumps(values), "utf-8")
    assert ours(tmp_path) == theirs(tmp_path, family)


# Other keys take no null in transformers.
NULLABLE = {
    "Llama": ("num_key_value_heads", "head_dim", "rope_parameters"),
    "Mistral": ("head_dim", "sliding_window", "rope_parameters"),
    "Qwen2": ("num_key_value_heads", "sliding_window", "layer_types", "rope_parameters"),
    "Qwen3": ("num_key_value_heads", "sliding_window", "layer_types", "rope_parameters"),
}


@pytest.mark.parametrize(
    ("family", "key"), [(family, key) for family, keys in NULLABLE.items() for key in keys]
)
def test_null_means_what_transformers_takes(tmp_path: Path, family: str, key: str) -> None:
    written(tmp_path, family, {key: None})
    assert ours(tmp_path) == theirs(tmp_path, family)


def test_a_default_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "Mistral", {"num_attention_heads": 4}, left_out="num_key_value_heads")
    with pytest.raises(ModelLoadError, match=r"missing, and the default .* 8, does"):
        model_config(tmp_path)
