"""GGUF files of every architecture against transformers on the weights that they hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.cache.kv import KVCache
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model_files import ModelFiles
from engine.sampling.logits import Logits
from tests.support.gguf_models import Type, write_gguf
from tests.support.tiny_models import FAMILIES, VOCAB_SIZE, oracle

NAMES = (
    "llama", "llama-tied", "llama-mqa", "llama-head-dim", "llama-biases", "llama3-rope",
    "llama-linear-rope", "llama-yarn", "mistral", "mistral-window", "qwen2", "qwen3",
)  # fmt: skip
AS_STORED = 0.2
N_TOKENS = 100  # beyond every window and every original context


def native(dtype: str = "float32") -> Ops:
    """`auto`: each matrix in the format that holds the blocks of the file."""
    return open_ops(device="cpu", dtype=dtype, stored_dtypes=["Q4_0"], require_native=True)


def loaded(path: Path, ops: Ops) -> Model:
    files = ModelFiles.open(path)
    weights = load_weights(files.tensors(), files.config, ops)
    return Model(weights, files.config, ops, max_seq_len=128)


def logits_of(model: Model, token_ids: list[int]) -> Logits:
    """Half of the tokens are prefilled, the others decoded: (n / 2, vocab_size)."""
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    half = len(token_ids) // 2
    assert model.prefill(token_ids[:half], cache)
    return np.concatenate([model.decode([each], cache).copy() for each in token_ids[half:]])


def difference(path: Path, transformers: Any, ops: Ops) -> float:
    """The largest between our logits and those of the oracle."""
    token_ids = np.random.default_rng(1).integers(0, VOCAB_SIZE, N_TOKENS).tolist()
    with torch.no_grad():
        expected = transformers(torch.tensor([token_ids])).logits[0, N_TOKENS // 2 :].numpy()
    return float(np.abs(logits_of(loaded(path, ops), token_ids) - expected).max())


@pytest.mark.parametrize(
    ("gate", "up"),
    [
        (Type.Q4_K, Type.Q6_K),
        (Type.Q3_K, Type.Q6_K),
        (Type.Q8_0, Type.Q4_0),
        (Type.F32, Type.Q5_K),
        (Type.IQ4_XS, Type.BF16),
    ],
    ids=lambda each: each.name,
)
def test_gate_and_up_may_have_two_types(tmp_path: Path, gate: Type, up: Type) -> None:
    def types(name: str) -> Type:
        return {"ffn_gate": gate, "ffn_up": up}.get(name.split(".")[-2], Type.F32)

    model, path = oracle(FAMILIES["llama"], hidden_size=256), tmp_path / "model.gguf"
    write_gguf(path, model, types=types)
    scale = float(np.abs(logits_of(loaded(path, native()), list(range(20)))).max())
    assert difference(path, model, native()) < 1e-4 * scale
    # Activations are rounded to 8 bits there, weights are not.
    assert difference(path, model, native("auto")) < 0.1 * scale


@pytest.mark.parametrize("name", NAMES)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    model, path = oracle(FAMILIES[name]), tmp_path / "model.gguf"
    write_gguf(path, model)
    assert difference(path, model, native()) < 1e-4


@pytest.mark.parametrize("type_", [Type.F16, Type.BF16])
def test_halves_are_exact(tmp_path: Path, type_: Type) -> None:
    model, path = oracle(FAMILIES["llama3-rope"]), tmp_path / "model.gguf"
    write_gguf(path, model, types=type_)
    assert difference(path, model, native()) < 1e-4


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("type_", [Type.Q8_0, Type.Q4_0, Type.Q5_1], ids=lambda each: each.name)
def test_blocks_are_what_they_stand_for(tmp_path: Path, name: str, type_: Type) -> None:
    """Queries and keys of a Llama change places by whole rows of blocks."""
    model, path = oracle(FAMILIES[name], head_dim=16), tmp_path / "model.gguf"
    write_gguf(path, model, types=type_)
    assert difference(path, model, native()) < 1e-3
    assert difference(path, model, TorchOps("cpu", "float32")) < 1e-3
    # Activations are rounded to 8 bits there, weights are not.
    assert difference(path, model, native("auto")) < AS_STORED


def mixed(name: str) -> Type:
    """As Q4_K_M files mix them: other types for v, for down and for the head."""
    if "attn_v" in name or "ffn_down" in name:
        return Type.Q8_0
    return Type.Q5_0 if "token_embd" in name else Type.Q4_1


def test_types_differ_between_tensors(tmp_path: Path) -> None:
    model, path = oracle(FAMILIES["llama-tied"]), tmp_path / "model.gguf"
    write_gguf(path, model, types=mixed)
    assert difference(path, model, native()) < 1e-3
    assert difference(path, model, native("auto")) < AS_STORED
    weights = loaded(path, native("auto")).weights
    assert weights.embedding.format == weights.head.format == "q5_0"
    assert [matrix.format for matrix in (weights.layers[0].wqkv, weights.layers[0].w_down)] == [
        "4bit+8bit",
        "8bit",
    ]


def test_parts_are_one_model(tmp_path: Path) -> None:
    model = oracle(FAMILIES["llama"])
    write_gguf(tmp_path / "model.gguf", model, tensors_per_part=12)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert difference(tmp_path, model, native()) < 1e-4
