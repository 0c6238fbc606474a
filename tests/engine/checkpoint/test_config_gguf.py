"""What the metadata of GGUF files mean, and what is refused by key and value."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.checkpoint.config import ModelConfig, QkNorm
from engine.checkpoint.ropes import DividedScaling, LinearScaling, YarnScaling
from engine.errors import ModelLoadError
from engine.model_files import ModelFiles

SIZES: dict[str, Any] = {
    "block_count": 2,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-5,
}
N_ROWS = 40


def write(
    path: Path,
    keys: Mapping[str, Any] | None = None,
    *,
    architecture: str = "llama",
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """A file with these keys of the architecture (a leading dot: of the file) and no layers."""
    file = path / "model.gguf"
    writer = gguf.GGUFWriter(file, architecture)
    tokens = {".tokenizer.ggml.tokens": ["a"] * N_ROWS}
    for key, value in {**SIZES, **tokens, **(keys or {})}.items():
        name = key[1:] if key.startswith(".") else f"{architecture}.{key}"
        match value:
            case None:
                continue
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
            case _:
                writer.add_array(name, value)
    shapes = {"token_embd.weight": (N_ROWS, 64), **(tensors or {})}
    for name, shape in shapes.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def read(path: Path, keys: Mapping[str, Any] | None = None, **options: Any) -> ModelConfig:
    return ModelFiles.open(write(path, keys, **options)).config


def test_the_least_that_a_file_must_say(tmp_path: Path) -> None:
    config = read(tmp_path)
    (attention, _) = (layer.attention for layer in config.layers)
    assert (config.architecture, config.dim, config.vocab_size) == ("llama", 64, N_ROWS)
    assert (attention.n_heads, attention.n_kv_heads, attention.head_dim) == (4, 4, 16)
    assert (attention.window, attention.qkv_bias, attention.o_bias) == (0, False, False)
    assert not attention.qk_norm
    assert config.layers[0].mlp.hidden_dim == 96
    assert config.norm_eps == pytest.approx(1e-5)
    assert (config.ropes[0].theta, config.ropes[0].scaling) == (10000.0, None)
    assert config.tie_embeddings
    assert (config.max_seq_len, config.eos_token_ids, config.bos_token_id) == (512, (), None)


@pytest.mark.parametrize("key", sorted(SIZES))
def test_what_a_file_must_say_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"model\.gguf: llama\.{key}: missing"):
        read(tmp_path, {key: None})


def test_numbers_for_each_layer(tmp_path: Path) -> None:
    arrays = {
        "attention.head_count": [4, 2],
        "attention.head_count_kv": [2, 2],
        "feed_forward_length": [96, 32],
    }
    first, second = read(tmp_path, arrays).layers
    assert (first.attention.n_heads, second.attention.n_heads) == (4, 2)
    assert first.attention.n_kv_heads == second.attention.n_kv_heads == 2
    assert (first.mlp.hidden_dim, second.mlp.hidden_dim) == (96, 32)


def test_tensors_say_what_the_keys_do_not(tmp_path: Path) -> None:
    tensors = {
        "output.weight": (N_ROWS, 64),
        "blk.1.attn_q.bias": (64,),
        "blk.1.attn_output.bias": (64,),
        "blk.0.ffn_down.bias": (64,),
    }
    config = read(tmp_path, tensors=tensors)
    first, second = config.layers
    assert not config.tie_embeddings
    assert (first.attention.qkv_bias, second.attention.qkv_bias) == (False, True)
    assert (first.attention.o_bias, second.attention.o_bias) == (False, True)
    assert (first.mlp.bias, second.mlp.bias) == (True, False)


def test_architectures_differ_in_biases_and_norms(tmp_path: Path) -> None:
    qwen2 = read(tmp_path, architecture="qwen2").layers[0].attention
    qwen3 = read(tmp_path, {"attention.key_length": 32}, architecture="qwen3").layers[0].attention
    assert (qwen2.qkv_bias, qwen2.qk_norm) == (True, None)
    assert (qwen3.qkv_bias, qwen3.qk_norm, qwen3.head_dim) == (False, QkNorm(), 32)


def test_windows_of_all_layers_or_of_some(tmp_path: Path) -> None:
    window = {"attention.sliding_window": 8}
    of_all = [layer.attention.window for layer in read(tmp_path, window).layers]
    pattern = {"attention.sliding_window_pattern": [False, True]}
    of_some = [layer.attention.window for layer in read(tmp_path, window | pattern).layers]
    assert (of_all, of_some) == ([8, 8], [0, 8])


@pytest.mark.parametrize(
    ("keys", "scaling", "length"),
    [
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None, 512),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, LinearScaling(4.0), 2048),
        ({"rope.scaling.factor": 4.0}, LinearScaling(4.0), 2048),
        ({"rope.scale_linear": 2.0}, LinearScaling(2.0), 1024),
        ({"rope.scaling.factor": 0.0}, None, 512),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
            },
            YarnScaling(4.0, 128, 0.1 * math.log(4.0) + 1.0, 32.0, 1.0, True),
            512,
        ),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.yarn_log_multiplier": 1.0,
                "rope.scaling.attn_factor": 2.0,
                "rope.scaling.yarn_beta_fast": 16.0,
                "rope.scaling.yarn_beta_slow": 2.0,
            },
            YarnScaling(4.0, 512, 2.0, 16.0, 2.0, True),
            2048,
        ),
    ],
)
def test_rope_scaling(tmp_path: Path, keys: dict[str, Any], scaling: object, length: int) -> None:
    config = read(tmp_path, keys)
    assert config.ropes[0].scaling == scaling
    assert config.max_seq_len == length


def test_divisors_of_frequencies_come_on_top_of_a_factor(tmp_path: Path) -> None:
    divisors = {"rope_freqs.weight": (8,)}
    assert read(tmp_path, tensors=divisors).ropes[0].scaling == DividedScaling((1.0,) * 8)
    config = read(tmp_path, {"rope.scaling.factor": 4.0}, tensors=divisors)
    assert config.ropes[0].scaling == DividedScaling((4.0,) * 8)
    assert "divided by 4 to 4" in config.ropes[0].describe()


def test_heads_of_sliding_layers_are_of_their_own(tmp_path: Path) -> None:
    """Their width, their number, and how they are rotated."""
    keys = {
        "attention.key_length": 32,
        "attention.key_length_swa": 8,
        "attention.value_length_swa": 8,
        "rope.dimension_count_swa": 8,
        "rope.freq_base_swa": 500.0,
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": [True, False],
        "attention.head_count_kv": [2, 1],
    }
    file = write(tmp_path, keys, architecture="gemma4", tensors={"rope_freqs.weight": (16,)})
    config = ModelFiles.open(file).config
    sliding, full = (layer.attention for layer in config.layers)
    assert (sliding.head_dim, sliding.n_kv_heads, sliding.rope) == (8, 2, 1)
    assert (full.head_dim, full.n_kv_heads, full.rope) == (32, 1, 0)
    assert (config.ropes[1].theta, config.ropes[1].rotary_dim) == (500.0, 8)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "experts without a number": ({"expert_count": 8}, ("llama.expert_used_count",)),
    "more experts used than there are": (
        {"expert_count": 8, "expert_used_count": 9},
        ("llama.expert_used_count", "not 9"),
    ),
    "another kind of router": (
        {"expert_count": 8, "expert_used_count": 2, "expert_gating_func": 4},
        ("llama.expert_gating_func: must be one of 1, 2, 3", "not 4"),
    ),
    "not causal": ({"attention.causal": False}, ("llama.attention.causal", "not False")),
    "capped": ({"final_logit_softcapping": 30.0}, ("final_logit_softcapping", "not 30.0")),
    "scaled": ({"logit_scale": 0.25}, ("llama.logit_scale: must be 1.0", "not 0.25")),
    "layers": ({"block_count": 0}, ("llama.block_count: must be", "not 0")),
    "many layers": ({"block_count": 2**31}, ("llama.block_count", "1024", "2147483648")),
    "width": ({"embedding_length": 63}, ("attention.head_count", "divisor", "not 4")),
    "heads": ({"attention.head_count": 0}, ("llama.attention.head_count", "not 0")),
    "key heads": ({"attention.head_count_kv": 3}, ("head_count_kv", "divisor of the 4", "not 3")),
    "few heads": ({"attention.head_count": [4]}, ("head_count", "each of 2 layers", "array of 1")),
    "uneven": ({"attention.head_count_kv": [4, 3]}, ("head_count_kv", "divisor of the 4", "not 3")),
    "sliding heads": ({"attention.key_length_swa": 15}, ("key_length_swa", "even", "not 15")),
    "sliding values": ({"attention.value_length_swa": 8}, ("value_length_swa", "16", "not 8")),
    "borrowed keys": ({"attention.shared_kv_layers": 1}, ("shared_kv_layers: must be 0", "not 1")),
    "embeddings of layers": (
        {"embedding_length_per_layer_input": 8},
        ("embedding_length_per_layer_input: must be 0", "not 8"),
    ),
    "odd": ({"attention.key_length": 15}, ("attention.key_length", "even", "not 15")),
    "values": ({"attention.value_length": 8}, ("attention.value_length", "16", "not 8")),
    "partial": ({"rope.dimension_count": 7}, ("rope.dimension_count", "even", "not 7")),
    "too much": ({"rope.dimension_count": 18}, ("rope.dimension_count", "16", "not 18")),
    "rule": ({"rope.scaling.type": "longrope"}, ("rope.scaling.type", "yarn", "'longrope'")),
    "factor": ({"rope.scaling.factor": 0.5}, ("rope.scaling.factor", "between 1", "not 0.5")),
    "theta": ({"rope.freq_base": 0.0}, ("rope.freq_base", "between 1 and", "not 0.0")),
    "epsilon": ({"attention.layer_norm_rms_epsilon": -1.0}, ("rms_epsilon", "not -1.0")),
    "pattern": (
        {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True]},
        ("sliding_window_pattern", "array of 2 bools", "array of 1"),
    ),
    "tokens": (
        {".tokenizer.ggml.tokens": ["a"] * (N_ROWS + 1)},
        ("tokenizer.ggml.tokens", "at most 40", "41 tokens"),
    ),
    "bos": ({".tokenizer.ggml.bos_token_id": N_ROWS}, ("bos_token_id", "0 and 39", "not 40")),
    "projector": ({".general.type": "mmproj"}, ("general.type: must be 'model'", "'mmproj'")),
    "kind": ({"context_length": "512"}, ("llama.context_length: must be an integer", "'512'")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused_by_key_and_value(tmp_path: Path, name: str) -> None:
    keys, parts = REFUSED[name]
    with pytest.raises(ModelLoadError) as caught:
        read(tmp_path, keys)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'model.gguf'}: ")
    assert all(part in message for part in parts), message


def test_an_unknown_architecture_is_named_with_the_nearest(tmp_path: Path) -> None:
    told = r"gemma5 is not supported; the nearest family is gemma2;"
    with pytest.raises(ModelLoadError, match=told):
        read(tmp_path, architecture="gemma5")


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"token_embd.weight": (64,)}, r"token_embd\.weight: has shape \[64\]"),
        ({"rope_freqs.weight": (7,)}, r"rope_freqs\.weight: is F32 of shape \[7\]; .* \[8\]"),
        ({}, r"output_norm\.weight: missing; metadata asks for shape \[64\]"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]], said: str
) -> None:
    with pytest.raises(ModelLoadError, match=said):
        ModelFiles.open(write(tmp_path, tensors=tensors)).tensors()


def test_recommended_settings_are_read(tmp_path: Path) -> None:
    keys = {".general.sampling.temp": 0.5, ".general.sampling.top_k": 20}
    files = ModelFiles.open(write(tmp_path, keys))
    assert files.generation().sampling == {"temperature": 0.5, "top_k": 20}
    assert ModelFiles.open(write(tmp_path)).generation().sampling == {}
