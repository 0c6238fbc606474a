"""config.json -> ModelConfig: what is read, and what is refused with which words."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine import ModelLoadError
from engine.checkpoint.config import AttentionConfig, LayerConfig, MlpConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.ropes import LinearScaling, Llama3Scaling, RopeConfig

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def write(path: Path, values: dict[str, Any]) -> Path:
    (path / "config.json").write_text(json.dumps(values), "utf-8")
    return path


def test_a_llama_without_optional_keys(tmp_path: Path) -> None:
    config = model_config(write(tmp_path, LLAMA))
    attention = AttentionConfig(n_heads=4, n_kv_heads=2, head_dim=16)
    assert (config.dim, config.layers) == (64, (LayerConfig(attention, MlpConfig(96)),) * 2)
    assert config.ropes == (RopeConfig(theta=10000.0, rotary_dim=16, scaling=None),)
    assert not config.tie_embeddings
    assert config.eos_token_ids == ()
    assert config.bos_token_id is None
    assert config.kv_shapes == ((2, 16),) * 2


def test_llama_1_has_no_key_value_heads_of_its_own(tmp_path: Path) -> None:
    values = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert model_config(write(tmp_path, values)).kv_shapes == ((4, 16),) * 2


@pytest.mark.parametrize(
    ("eos", "expected"), [(2, (2,)), ([2, 3, 2], (2, 3)), (None, ()), ([], ())]
)
def test_end_tokens(tmp_path: Path, eos: Any, expected: tuple[int, ...]) -> None:
    values = {**LLAMA, "eos_token_id": eos, "bos_token_id": 1}
    config = model_config(write(tmp_path, values))
    assert config.eos_token_ids == expected
    assert config.bos_token_id == 1


LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": {**LLAMA3, "rope_type": "llama3"}},
        {"rope_parameters": {**LLAMA3, "rope_type": "llama3", "rope_theta": 5e5}},
    ],
    ids=["old keys", "new key"],
)
def test_llama3_scaling(tmp_path: Path, keys: dict[str, Any]) -> None:
    (rope,) = model_config(write(tmp_path, {**LLAMA, **keys})).ropes
    assert rope.theta == 5e5
    assert rope.scaling == Llama3Scaling(8.0, 1.0, 4.0, 8192)


@pytest.mark.parametrize("type_key", ["type", "rope_type"])
def test_linear_scaling(tmp_path: Path, type_key: str) -> None:
    values = {**LLAMA, "rope_scaling": {type_key: "linear", "factor": 4}}
    assert model_config(write(tmp_path, values)).ropes[0].scaling == LinearScaling(4.0)


@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"sliding_window": 40}, [40, 40]),
        ({"sliding_window": None}, [0, 0]),
        ({}, [4096, 4096]),
    ],
)
def test_mistral_windows(tmp_path: Path, keys: dict[str, Any], windows: list[int]) -> None:
    values = {**LLAMA, **keys, "architectures": ["MistralForCausalLM"]}
    layers = model_config(write(tmp_path, values)).layers
    assert [layer.attention.window for layer in layers] == windows


QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 40}
KINDS = ["full_attention", "sliding_attention"]


@pytest.mark.parametrize("architecture", ["Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(
    ("keys", "windows"),
    [
        ({"sliding_window": 40, "max_window_layers": 0}, [0, 0]),
        ({**QWEN_WINDOW, "max_window_layers": 1}, [0, 40]),
        ({**QWEN_WINDOW, "max_window_layers": 2}, [0, 0]),
        ({**QWEN_WINDOW, "layer_types": KINDS}, [0, 40]),
        ({**QWEN_WINDOW, "use_sliding_window": False, "layer_types": KINDS}, [0, 0]),
    ],
)
def test_qwen_windows(
    tmp_path: Path, architecture: str, keys: dict[str, Any], windows: list[int]
) -> None:
    layers = model_config(
        write(tmp_path, {**LLAMA, **keys, "architectures": [architecture]})
    ).layers
    assert [layer.attention.window for layer in layers] == windows


def test_biases_and_head_norms(tmp_path: Path) -> None:
    both = {"attention_bias": True, "mlp_bias": True}
    llama = model_config(write(tmp_path, {**LLAMA, **both})).layers[0]
    assert biases(llama) == (True, True, True)
    qwen2 = model_config(write(tmp_path, {**LLAMA, "architectures": ["Qwen2ForCausalLM"]}))
    assert biases(qwen2.layers[0]) == (True, False, False)
    assert not qwen2.layers[0].attention.qk_norm
    qwen3 = {**LLAMA, "head_dim": 16, "architectures": ["Qwen3ForCausalLM"]}
    layer = model_config(write(tmp_path, qwen3)).layers[0]
    assert biases(layer) == (False, False, False)
    assert layer.attention.qk_norm


def biases(layer: LayerConfig) -> tuple[bool, bool, bool]:
    return layer.attention.qkv_bias, layer.attention.o_bias, layer.mlp.bias


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["GemmaForCausalLM"]}, "architectures: GemmaForCausalLM is not supported"),
    ({"architectures": ["LlamaForCausalLM", "X"]}, "architectures: must be a list of one of those"),
    ({"architectures": "LlamaForCausalLM"}, "architectures: must be a list of strings"),
    ({"architectures": [["LlamaForCausalLM"]]}, "architectures: must be a list of strings"),
    ({"architectures": None}, "architectures: missing"),
    ({"hidden_size": "64"}, "hidden_size: must be an integer between 1 and 1048576, not '64'"),
    ({"hidden_size": None}, "hidden_size: missing"),
    ({"hidden_size": 64.0}, "hidden_size: must be an integer"),
    ({"hidden_size": True}, "hidden_size: must be an integer"),
    ({"hidden_size": -64}, "hidden_size: must be an integer between 1"),
    ({"num_attention_heads": 6}, "num_attention_heads: must be a divisor of hidden_size 64, not 6"),
    ({"num_attention_heads": 0}, "num_attention_heads: must be an integer between 1"),
    ({"num_key_value_heads": 0}, "num_key_value_heads: must be an integer between 1 and 4, not 0"),
    ({"num_key_value_heads": 8}, "num_key_value_heads: must be an integer between 1 and 4, not 8"),
    ({"num_key_value_heads": 3}, "num_key_value_heads: must be a divisor of the 4"),
    ({"head_dim": 15}, "head_dim: must be an even number, not 15"),
    ({"head_dim": 0}, "head_dim: must be an integer between 2"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be an integer between 1 and 1024"),
    ({"vocab_size": 2**31}, "vocab_size: must be an integer between 1 and 16777216"),
    ({"intermediate_size": 0}, "intermediate_size: must be an integer between 1"),
    ({"max_position_embeddings": 0}, "max_position_embeddings: must be an integer between 1"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps: must be a number"),
    ({"rms_norm_eps": -1e-5}, "rms_norm_eps: must be a number between 0"),
    ({"rope_theta": 0}, "rope_theta: must be a number between 1"),
    ({"rope_theta": -1.0}, "rope_theta: must be a number between 1"),
    ({"rope_theta": "big"}, "rope_theta: must be a number"),
    ({"rope_scaling": {"type": "mrope"}}, "rope_scaling: type: must be 'default'"),
    ({"rope_scaling": {"rope_type": "dynamical"}}, "not 'dynamical'"),
    ({"rope_scaling": "linear"}, "rope_scaling: must be an object"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling: factor: missing"),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling: factor: must be a number"),
    (
        {"rope_scaling": {**LLAMA3, "rope_type": "llama3", "high_freq_factor": 1.0}},
        "high_freq_factor: must be more than low_freq_factor 1",
    ),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: must be 1, not 0.5"),
    ({"hidden_act": "gelu"}, "hidden_act: must be 'silu', not 'gelu'"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping: must be 0: this architecture"),
    ({"residual_multiplier": 0.22}, "residual_multiplier: must be 1: this architecture"),
    ({"attention_multiplier": 0.1}, "attention_multiplier: must be left out: this architecture"),
    (
        {"architectures": ["MistralsForCausalLM"], "num_local_experts": 8},
        "the nearest family is MixtralForCausalLM; choose",
    ),
    (
        {"architectures": ["SmolLM3ForCausalLM"], "no_rope_layers": [1, 2]},
        "no_rope_layers: must be a list of 2 numbers, each 0 or 1, not [1, 2]",
    ),
    (
        {"architectures": ["GemmaForCausalLM", "Gemma2ForCausalLM"]},
        "architectures: must be a list of one of those that docs/models.md lists",
    ),
    (
        {"architectures": ["Gemma2ForCausalLM"], "hidden_activation": "relu"},
        "hidden_activation: must be 'silu' or 'swish' or 'gelu' or 'gelu_new' or",
    ),
    (
        {"architectures": ["StableLmForCausalLM"], "partial_rotary_factor": 0.2, "head_dim": 16},
        "partial_rotary_factor: must be an even part of the 16 of a head, not 0.2",
    ),
    ({"eos_token_id": 100}, "eos_token_id: must be token ids between 0 and 99, not 100"),
    ({"eos_token_id": [2, -1]}, "eos_token_id: must be token ids between 0 and 99"),
    ({"eos_token_id": "2"}, "eos_token_id: must be a token id or a list of them"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings: must be true or false, not 'no'"),
    ({"attention_bias": 1}, "attention_bias: must be true or false, not 1"),
    (
        {"quantization_config": {"quant_method": "gptq"}},
        "quantized weights are not supported (quant_method 'gptq'); allowed are F32, F16 and BF16; "
        "load the original model and quantize it here, to 8bit, 6bit, 5bit or 4bit",
    ),
    (
        {"quantization_config": {"quant_method": "awq"}},
        "quantized weights are not supported (quant_method 'awq')",
    ),
    (
        {"architectures": ["GemmaForCausalLM"]},
        "architectures: GemmaForCausalLM is not supported; the nearest family is Gemma2ForCausalLM",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_with_file_key_and_value(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    write(tmp_path, {**LLAMA, **keys})
    with pytest.raises(ModelLoadError) as caught:
        model_config(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'config.json'}: ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b"null", "must be a JSON object"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
    ],
    ids=["empty", "cut", "array", "null", "UTF-16", "NaN", "duplicate", "deep", "long number"],
)
def test_damaged_json(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(ModelLoadError, match=message):
        model_config(tmp_path)


def test_a_missing_file_and_a_directory_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json: does not exist"):
        model_config(tmp_path)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelLoadError, match="is not a regular file"):
        model_config(tmp_path)


def test_code_in_the_directory_is_not_run(tmp_path: Path) -> None:
    auto_map = {"AutoModelForCausalLM": "modeling_evil.Evil"}
    (tmp_path / "modeling_evil.py").write_text("raise SystemExit('ran')", "utf-8")
    values = {**LLAMA, "auto_map": auto_map, "trust_remote_code": True}
    assert model_config(write(tmp_path, values)).architecture == "LlamaForCausalLM"
