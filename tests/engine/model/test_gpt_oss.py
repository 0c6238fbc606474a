"""gpt-oss around its forward pass: blocks as they are stored, and what is refused.

test_family_parity.py compares what it computes with transformers.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.description import describe
from engine.device.open import open_ops
from engine.errors import ModelLoadError
from tests.engine.model.test_model_parity import loaded, logits_after, oracle_logits, prompt
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model with experts in blocks, and what transformers has of it."""
    path = tmp_path_factory.mktemp("gpt_oss")
    return path, save_model(path, FAMILY_MODELS["gpt_oss-blocks"])


@pytest.fixture
def copy(tmp_path: Path, saved: tuple[Path, Any]) -> Path:
    return shutil.copytree(saved[0], tmp_path / "model")


def change(path: Path, **keys: Any) -> None:
    """Keys of config.json; None removes one."""
    file = path / "config.json"
    config = {**json.loads(file.read_text("utf-8")), **keys}
    kept = {key: value for key, value in config.items() if value is not None}
    file.write_text(json.dumps(kept), "utf-8")


def read(path: Path) -> None:
    check_tensors(read_checkpoint(path), model_config(path))


def test_blocks_stay_what_they_are(saved: tuple[Path, Any]) -> None:
    """By default: only activations are rounded, to 8 bits."""
    path, oracle = saved
    assert describe(path).default_format == "stored"
    token_ids = prompt(40)
    ops = open_ops(device="cpu", stored_dtypes=["MXFP4"], kv_cache="float32")
    model = loaded(path, ops=ops)
    experts = model.weights.layers[0].experts
    assert experts is not None
    assert {each.format for each in (*experts.gate_up, *experts.down)} == {"mxfp4"}
    assert experts.router.format == "float32"
    expected = oracle_logits(oracle, token_ids)
    difference = logits_after(model, token_ids, n_prefill=30) - expected[30:]
    assert np.linalg.norm(difference) < 0.05 * np.linalg.norm(expected[30:])


@pytest.mark.parametrize("name", ["gate_up_proj_bias", "down_proj_bias"])
def test_each_expert_has_its_own_biases(copy: Path, saved: tuple[Path, Any], name: str) -> None:
    token_ids, key = prompt(20), f"model.layers.1.mlp.experts.{name}"
    tensors = load_file(copy / WEIGHTS)
    tensors[key] = tensors[key][::-1].copy()
    save_file(tensors, copy / WEIGHTS)
    found = logits_after(loaded(copy), token_ids, n_prefill=0)
    assert np.abs(found - oracle_logits(saved[1], token_ids)).max() > 1e-2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"swiglu_limit": 6.0}, "swiglu_limit: must be 7: nothing else is computed, not 6.0"),
        ({"swiglu_alpha": 1.5}, "swiglu_alpha: must be 1.702: nothing else is computed, not 1.5"),
        ({"hidden_act": "gelu"}, "hidden_act: must be 'silu', not 'gelu'"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok: must be at most the 6 experts, not 7"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantized weights are not supported (quant_method 'gptq')",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(copy: Path, keys: dict[str, Any], message: str) -> None:
    change(copy, **keys)
    with pytest.raises(ModelLoadError) as caught:
        read(copy)
    assert message in str(caught.value)


def test_others_have_no_blocks(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["mixtral"])
    change(tmp_path, quantization_config={"quant_method": "mxfp4"})
    with pytest.raises(ModelLoadError, match=r"not supported \(quant_method 'mxfp4'\)"):
        read(tmp_path)


def test_a_clamp_is_refused_where_nothing_is_clamped(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["mixtral"])
    change(tmp_path, swiglu_limit=7.0)
    with pytest.raises(ModelLoadError, match="swiglu_limit: must be left out"):
        read(tmp_path)


@pytest.mark.parametrize(("hidden_dim", "name"), [(32, "down_proj"), (64, "gate_up_proj")])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_config_and_tensors_must_agree_on_blocks(
    tmp_path: Path, in_blocks: bool, hidden_dim: int, name: str
) -> None:
    """Also where one of the matrices has the same shape in both forms."""
    family = FAMILY_MODELS["gpt_oss-blocks" if in_blocks else "gpt_oss"]
    save_model(
        tmp_path, replace(family, options={**family.options, "intermediate_size": hidden_dim})
    )
    read(tmp_path)
    change(tmp_path, quantization_config=None if in_blocks else {"quant_method": "mxfp4"})
    with pytest.raises(ModelLoadError, match=rf"experts\.{name}: has shape .*asks for"):
        read(tmp_path)
