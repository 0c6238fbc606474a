"""What is said of models that are not supported: the nearest family, and what it does not know."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from engine.checkpoint.config_json import model_config_of
from engine.errors import ModelLoadError
from engine.files import JsonObject
from engine.model_files import ModelFiles
from tests.engine.checkpoint.test_config_fields import config_of, first_of
from tests.engine.checkpoint.test_config_gguf import write

# The class of the configuration in transformers, the nearest family, and keys that it is said not
# to know.
REAL = [
    ("Gemma", "Gemma2", ["hidden_act"]),
    ("Olmo", "Olmo2", ["clip_qkv"]),
    ("DeepseekV3", "Glm4Moe", ["kv_lora_rank", "q_lora_rank", "v_head_dim"]),
    ("MiniMaxM2", "Mixtral", []),
    ("Glm4MoeLite", "Glm4Moe", ["kv_lora_rank"]),
    ("GraniteMoeShared", "GraniteMoe", ["shared_intermediate_size"]),
    ("FalconMamba", "Falcon", []),
    ("Exaone", "Exaone4", ["mlp_bias"]),
]
# Made up, with the keys of a Llama.
MADE_UP = [
    ("Qwen4ForCausalLM", "Qwen3", ["qk_twist"]),
    ("Gemma5ForCausalLM", "Gemma2", ["qk_twist", "hidden_act"]),
    ("FooForCausalLM", "", ["qk_twist"]),
    ("F" * 100_000, "", ["qk_twist"]),
]
GGUF: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("gemma", {}, "gemma2", []),
    ("exaone", {}, "exaone4", []),
    ("qwen4", {"attention.twist": 2}, "qwen2", ["attention.twist"]),
    ("llama4", {"interleave_moe_layer_step": 1}, "", ["interleave_moe_layer_step"]),
    ("deepseek2", {"attention.kv_lora_rank": 8}, "", ["attention.kv_lora_rank"]),
    ("foo", {"whatever": 1}, "", ["whatever"]),
    ("glm-dsa", {"attention.indexer.top_k": 4}, "glm4", ["attention.indexer.top_k"]),
]


def refusal(values: dict[str, Any]) -> str:
    with pytest.raises(ModelLoadError, match="is not supported; the nearest family is") as caught:
        model_config_of(JsonObject(values, "config.json"))
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def assert_said(message: str, family: str, keys: list[str]) -> None:
    assert f"the nearest family is {family}" in message
    unknown = message.partition("which does not know ")[2]
    for key in keys:
        assert key in unknown


@pytest.mark.parametrize(("name", "family", "keys"), REAL)
def test_models_that_exist(name: str, family: str, keys: list[str]) -> None:
    config = json.loads(json.dumps(getattr(transformers, f"{name}Config")().to_dict()))
    message = refusal({**config, "architectures": [f"{name}ForCausalLM"]})
    assert_said(message, f"{family}ForCausalLM", keys)


@pytest.mark.parametrize(("name", "family", "keys"), MADE_UP)
def test_models_that_do_not(name: str, family: str, keys: list[str]) -> None:
    config = config_of(first_of("LlamaForCausalLM"), {})
    assert_said(refusal({**config, "architectures": [name], "qk_twist": 1.5}), family, keys)


@pytest.mark.parametrize(("name", "keys", "family", "unknown"), GGUF)
def test_files(
    tmp_path: Path, name: str, keys: dict[str, Any], family: str, unknown: list[str]
) -> None:
    file = write(tmp_path, keys, architecture=name)
    with pytest.raises(ModelLoadError) as caught:
        ModelFiles.open(file)
    message = str(caught.value)
    assert f"general.architecture: {name} is not supported; the nearest family is" in message
    assert_said(message, family, unknown)
