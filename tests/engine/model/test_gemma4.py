"""Gemma 4 around its forward pass: embeddings of each layer that stay in their file, experts beside
the feed-forward part, and layers that read the keys of others.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint.config_json import model_config
from engine.checkpoint.ropes import ProportionalScaling
from engine.description import describe
from engine.device.arguments import Attention, LookUp, Op
from engine.device.cuda.lacking import lacking_parts
from engine.device.open import open_ops
from engine.device.torch_ops import TorchOps, TorchProgram
from engine.errors import ModelLoadError
from engine.model_files import ModelFiles
from server.commands.model_summary import summary
from tests.engine.model.test_model_parity import (
    assert_close,
    empty_cache,
    loaded,
    logits_after,
    oracle_logits,
    prompt,
)
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import VOCAB_SIZE, save_model

PAIRS = Path(__file__).parents[1] / "gguf" / "pairs"


def test_the_table_of_embeddings_is_not_loaded(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["gemma4-embeddings"])
    described = describe(tmp_path)
    config = described.config
    scales = config.ends.layer_embeddings
    assert scales is not None
    n_numbers = VOCAB_SIZE * config.n_layers * scales.dim
    assert described.n_params == config.n_params
    assert described.table_bytes == 4 * n_numbers
    # Of the parameters, all others are loaded; panels are padded.
    loaded_numbers = described.weight_bytes("float32") // 4
    assert config.n_params - n_numbers <= loaded_numbers < config.n_params
    lines = dict(summary(described, 100, "auto"))
    told = f"12 wide in each layer, {4 * n_numbers / 1000:.1f} kB; they stay in the file"
    assert lines["layer embeddings"] == told


def test_rows_are_looked_up_for_each_pass(tmp_path: Path) -> None:
    """A start does not touch them, and a file that has changed meanwhile is an error."""
    save_model(tmp_path, FAMILY_MODELS["gemma4-embeddings"])
    model = loaded(tmp_path)
    cache = empty_cache(model)
    first, *_ = model.profile([1], cache)
    assert (first.name, first.n_bytes) == ("look_up 60", 0)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes())
    with pytest.raises(
        ModelLoadError, match=r"embed_tokens_per_layer\.weight: the file has changed"
    ):
        model.decode([1], cache)


class Recording(TorchOps):
    """Keeps the ops of each program."""

    def __init__(self) -> None:
        super().__init__("cpu", "float32")
        self.programs: list[list[Op]] = []

    def program(self, max_rows: int) -> TorchProgram:
        ops: list[Op] = []
        self.programs.append(ops)

        class Recorded(TorchProgram):
            def append(self, op: Op) -> None:
                ops.append(op)
                super().append(op)

        return Recorded()


def test_a_prompt_ends_with_the_last_keys(tmp_path: Path) -> None:
    """The three layers without keys of their own run for tokens alone."""
    save_model(tmp_path, FAMILY_MODELS["gemma4-embeddings"])
    ops = Recording()
    model = loaded(tmp_path, ops=ops)
    model.prefill(prompt(4), empty_cache(model))
    n_layers = [sum(isinstance(op, Attention) for op in program) for program in ops.programs]
    assert n_layers == [2, 5]
    assert [isinstance(program[1], LookUp) for program in ops.programs] == [True, True]


def test_keys_that_nothing_reads_may_be_stored(tmp_path: Path) -> None:
    """As published checkpoints have them in the layers that read those of others."""
    oracle = save_model(tmp_path, FAMILY_MODELS["gemma4-embeddings"])
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for layer in (2, 3, 4):
        for name in ("k_proj", "v_proj", "k_norm"):
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = torch.full((3,), torch.nan)
    save_file(tensors, file)
    token_ids = prompt(20)
    found = logits_after(loaded(tmp_path), token_ids, n_prefill=0)
    assert_close(found, oracle_logits(oracle, token_ids))


@pytest.mark.parametrize("quantize", ["8bit", "4bit"])
def test_experts_beside_embeddings_stay_near(tmp_path: Path, quantize: str) -> None:
    save_model(tmp_path, FAMILY_MODELS["gemma4-experts-embeddings"])
    token_ids = prompt(20)
    exact = logits_after(loaded(tmp_path), token_ids, n_prefill=0)
    ops = open_ops(device="cpu", quantize=quantize)
    rounded = logits_after(loaded(tmp_path, ops=ops), token_ids, n_prefill=0)
    assert np.corrcoef(exact.ravel(), rounded.ravel())[0, 1] > 0.85


def test_inspect_names_experts_beside_the_rest(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["gemma4-experts"])
    described = describe(tmp_path)
    assert described.n_params == described.config.n_params
    lines = dict(summary(described, 100, "auto"))
    told = "3, 64 wide, feed-forward 3 of 6 experts, 24 wide, and 96 shared"
    assert lines["layers"] == told
    assert "layer embeddings" not in lines
    lacking = lacking_parts(described.config)
    assert "experts with norms of their own" in lacking
    assert "embeddings of each layer" not in lacking


def test_torch_computes_embeddings_of_layers_on_cuda(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["gemma4-embeddings"])
    assert "embeddings of each layer" in lacking_parts(model_config(tmp_path))


def test_what_a_file_says_of_rope_and_of_keys() -> None:
    """llama.cpp's converter writes divisors for the part of a head that is not rotated."""
    config = ModelFiles.open(PAIRS / "gemma4-embeddings-bf16.gguf").config
    assert config.ropes[0].scaling == ProportionalScaling(1.0, 2)
    assert config.ropes[0].describe().endswith("4 of 16 dimensions rotated")
    assert [layer.attention.kv_from for layer in config.layers] == [None, None, 0, 1]
    assert [layer.mlp.hidden_dim for layer in config.layers] == [32, 32, 64, 64]
    shared = ModelFiles.open(PAIRS / "gemma4-bf16.gguf").config.layers
    assert [layer.attention.v_is_k for layer in shared] == [False, True]


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def edit(values: dict[str, Any]) -> None:
        for key in keys:
            del values[key]

    return edit


@pytest.mark.parametrize(
    ("family", "edit", "message"),
    [
        (
            "gemma4-embeddings",
            lambda values: values.update(vocab_size_per_layer_input=300),
            "vocab_size_per_layer_input: must be 320, as many as vocab_size, not 300",
        ),
        (
            "gemma4-embeddings",
            without("vocab_size_per_layer_input"),
            "vocab_size_per_layer_input: must be 320, as many as vocab_size, not 262144",
        ),
        (
            "gemma4-embeddings",
            lambda values: values.update(hidden_activation="silu"),
            "hidden_activation: must be another one beside hidden_size_per_layer_input",
        ),
        ("gemma4-experts", without("num_experts"), "num_experts: missing"),
        ("gemma4-experts", without("moe_intermediate_size"), "moe_intermediate_size: missing"),
        (
            "gemma4-experts",
            lambda values: values.update(top_k_experts=7),
            "top_k_experts: must be at most the 6 experts, not 7",
        ),
        (
            "gemma4-embeddings",
            lambda values: values.update(num_kv_shared_layers=4),
            "num_kv_shared_layers: must be fewer, so that there is a layer of each kind",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(
    tmp_path: Path, family: str, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    save_model(tmp_path, FAMILY_MODELS[family])
    file = tmp_path / "config.json"
    values = json.loads(file.read_text("utf-8"))
    edit(values)
    file.write_text(json.dumps(values), "utf-8")
    with pytest.raises(ModelLoadError, match=message):
        model_config(tmp_path)
