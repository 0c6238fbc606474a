"""What the columns of a layer's matrices count when it is quantised to 4 bits: the root mean square
of their inputs, as transformers computes them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.cache.kv import KVCache
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.arguments import Matrix
from engine.device.cpu.ops import CpuOps
from engine.model.calibration import Calibration
from engine.model.embeddings import Embedding
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model.weights import Weights
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import FAMILIES, save_model

MATRICES = {
    "wqkv": "self_attn.q_proj",
    "wo": "self_attn.o_proj",
    "w_gate_up": "mlp.gate_proj",
    "w_down": "mlp.down_proj",
}
LEAST = 1e-3

Floats = npt.NDArray[np.float32]


def loaded(path: Path, ops: CpuOps) -> tuple[ModelConfig, Weights]:
    config = model_config(path)
    return config, load_weights(check_tensors(read_checkpoint(path), config), config, ops)


def embedding_of(table: Matrix) -> Embedding:
    return Embedding(table=table, positions=None, of_layers=None)


@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_the_root_mean_square_of_the_inputs(family: str, tmp_path: Path) -> None:
    oracle = save_model(tmp_path, family)
    ops = CpuOps("float32", n_threads=1)
    config, weights = loaded(tmp_path, ops)
    calibration = Calibration(config, ops, embedding_of(weights.embedding))
    inputs = inputs_of(oracle, calibration.token_ids)
    for index, layer in enumerate(weights.layers):
        importance = calibration.next_layer(layer)
        for name, module in MATRICES.items():
            sizes = np.sqrt(np.square(inputs[f"model.layers.{index}.{module}"]).mean(0))
            expected = sizes / sizes.mean() + LEAST
            assert np.allclose(getattr(importance, name), expected, rtol=1e-3), (index, name)


def test_importance_where_experts_and_embeddings_stand_beside(tmp_path: Path) -> None:
    oracle = save_model(tmp_path, FAMILY_MODELS["gemma4-experts-embeddings"])
    ops = CpuOps("float32", n_threads=1)
    config, weights = loaded(tmp_path, ops)
    embedding = Embedding(
        table=weights.embedding, positions=None, of_layers=weights.layer_embeddings
    )
    calibration = Calibration(config, ops, embedding)
    modules = {**MATRICES, "experts_gate_up": ".experts"}
    inputs = inputs_of(oracle, calibration.token_ids, modules)
    for index, layer in enumerate(weights.layers):
        importance = calibration.next_layer(layer)
        for name, module in modules.items():
            sizes = np.sqrt(np.square(inputs[f"model.layers.{index}.{module.strip('.')}"]).mean(0))
            expected = sizes / sizes.mean() + LEAST
            assert np.allclose(getattr(importance, name), expected, rtol=1e-3), (index, name)


def test_a_model_that_computes_no_numbers_is_quantised_all_the_same(tmp_path: Path) -> None:
    save_model(tmp_path)
    config, weights = loaded(tmp_path, CpuOps("float32", n_threads=1))
    ops = CpuOps("4bit", n_threads=1)
    huge = ops.matrix([np.full((config.vocab_size, config.dim), 3e38, np.float32)], "float32")
    importance = Calibration(config, ops, embedding_of(huge)).next_layer(weights.layers[0])
    for values in importance:
        assert np.isfinite(values).all()


@pytest.mark.parametrize(("format_", "most"), [("5bit", 0.9), ("4bit", 0.5)])
def test_calibration_lowers_what_few_bits_cost(tmp_path: Path, format_: str, most: float) -> None:
    """Where a few columns are multiplied by far larger numbers than the others."""
    oracle = save_model(tmp_path)
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            if "layernorm" in name:
                parameter[:2] = 10.0
    oracle.save_pretrained(tmp_path)
    exact, calibrated = (outputs(tmp_path, each) for each in ("float32", format_))
    uniform = outputs(tmp_path, format_, calibrates=False)
    assert deviation(calibrated, exact) < most * deviation(uniform, exact)


@pytest.mark.parametrize(
    ("format_", "calibrates"), [("8bit", False), ("6bit", True), ("5bit", True), ("4bit", True)]
)
def test_the_formats_of_few_bits_are_calibrated(format_: str, calibrates: bool) -> None:
    assert CpuOps(format_, n_threads=1).calibrates == calibrates


def outputs(path: Path, format_: str, *, calibrates: bool = True) -> Floats:
    """The logits after 40 tokens, (40, vocab_size)."""
    ops = CpuOps(format_, kv_cache="float32", n_threads=1)
    ops.calibrates &= calibrates
    config, weights = loaded(path, ops)
    model = Model(weights, config, ops, max_seq_len=64)
    rows: list[Floats] = []
    ids = np.random.default_rng(2).integers(0, config.vocab_size, 40).tolist()
    model.prefill(
        ids, KVCache(config, ops, max_seq_len=64), on_logits=lambda each: rows.append(each.copy())
    )
    return np.concatenate(rows)


def deviation(found: Floats, exact: Floats) -> float:
    return float(np.square(found - exact).mean())


def inputs_of(
    oracle: Any, token_ids: list[int], modules: Mapping[str, str] = MATRICES
) -> dict[str, npt.NDArray[np.float64]]:
    inputs: dict[str, npt.NDArray[np.float64]] = {}
    hooks = [
        module.register_forward_hook(
            # Rows of one text; experts get them without a dimension for texts.
            lambda _, args, __, name=name: inputs.update(
                {name: args[0].reshape(-1, args[0].shape[-1]).double().numpy()}
            )
        )
        for name, module in oracle.named_modules()
        if name.endswith(tuple(modules.values()))
    ]
    with torch.no_grad():
        oracle(torch.tensor([token_ids]))
    for hook in hooks:
        hook.remove()
    return inputs
