"""Models with experts around their forward pass: configurations, bytes, panels and formats."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.checkpoint.config_json import model_config
from engine.description import describe
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.panel_cache import open_panels
from engine.device.open import open_ops
from engine.errors import ModelLoadError
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model_files import ModelFiles
from server.commands.model_summary import summary
from tests.engine.model.test_model_parity import empty_cache, loaded, logits_after, prompt
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model


def test_a_token_reads_the_experts_that_it_chooses(tmp_path: Path) -> None:
    """As the ops of a pass count them, too."""
    save_model(tmp_path, FAMILY_MODELS["qwen2_moe"])
    described = describe(tmp_path)
    config = described.config
    dim, n_layers = config.dim, config.n_layers
    experts = config.layers[0].mlp.experts
    assert experts is not None
    each = 3 * dim * experts.hidden_dim
    n_unused = n_layers * (experts.n_experts - experts.n_used)
    table = 4 * config.vocab_size * dim
    # A width of 24 is padded to two panels in gate and up, and to one block in down.
    padded = 4 * (2 * dim * 32 + dim * 32)
    whole = described.weight_bytes("float32")
    assert whole - described.step_bytes("float32") == n_unused * padded + table
    assert described.n_params == config.n_params
    assert config.n_params > n_layers * experts.n_experts * each
    model = loaded(tmp_path)
    ops = {op.name: op.n_bytes for op in model.profile([1], empty_cache(model))}
    (of_experts,) = (name for name in ops if name.startswith("experts"))
    assert of_experts == "experts 3 of 6 and a shared one 48x64 float32"
    shared = 4 * (2 * 48 * dim + dim * 64)
    assert ops[of_experts] == experts.n_used * padded + shared


def test_inspect_names_them(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["glm4_moe"])
    lines = dict(summary(describe(tmp_path), 100, "auto"))
    assert lines["layers"] == "3, 64 wide, feed-forward 96; 3 of 8 experts, 24 wide, and 48 shared"


def test_panels_are_kept(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["qwen3_moe"])
    files = ModelFiles.open(tmp_path)
    tensors, ops = files.tensors(), open_ops(device="cpu", quantize="4bit")
    found = []
    for is_complete in (False, True):
        with open_panels(tmp_path / "kept", tensors, "4bit", n_bytes=2**20) as panels:
            assert panels.is_complete is is_complete
            found.append(load_weights(tensors, files.config, ops, panels=panels))
    for one, other in zip(found[0].layers, found[1].layers, strict=True):
        assert one.experts is not None
        assert other.experts is not None
        for packed, kept in zip(one.experts.gate_up, other.experts.gate_up, strict=True):
            assert np.array_equal(packed.panels, kept.panels)  # type: ignore[attr-defined]
        assert one.experts.router.format == "bfloat16", "a rounded router chooses other experts"


@pytest.mark.parametrize("quantize", ["8bit", "6bit", "5bit", "4bit"])
def test_every_format_stays_near(tmp_path: Path, quantize: str) -> None:
    save_model(tmp_path, FAMILY_MODELS["mixtral"])
    token_ids = prompt(20)
    exact = logits_after(loaded(tmp_path), token_ids, n_prefill=0)
    rounded = logits_after(
        loaded(tmp_path, ops=open_ops(device="cpu", quantize=quantize)), token_ids, n_prefill=0
    )
    assert np.corrcoef(exact.ravel(), rounded.ravel())[0, 1] > 0.85


@pytest.mark.parametrize(
    ("family", "keys", "message"),
    [
        ("qwen3_moe", {"num_experts_per_tok": 7}, "num_experts_per_tok: .*at most the 6 experts"),
        ("qwen3_moe", {"mlp_only_layers": "1"}, "mlp_only_layers: .*a list of numbers of layers"),
        ("qwen3_moe", {"num_local_experts": 0}, "num_local_experts"),
        ("glm4_moe", {"n_group": 3}, "experts: n_groups: 2 of 3 equal groups"),
        ("glm4_moe", {"num_experts_per_tok": 5}, "experts: n_groups_used: too few experts for 5"),
        ("mixtral", {"hidden_act": "gelu"}, "hidden_act"),
        ("olmoe", {"clip_qkv": 3.0}, "clip_qkv: .*left out"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    tmp_path: Path, family: str, keys: dict[str, Any], message: str
) -> None:
    save_model(tmp_path, FAMILY_MODELS[family])
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **keys}), "utf-8")
    with pytest.raises(ModelLoadError, match=message):
        model_config(tmp_path)


def test_gate_and_up_of_all_experts_may_be_one_tensor(tmp_path: Path) -> None:
    """As Qwen 3.5 is published; transformers saves each expert by itself."""
    save_model(tmp_path, FAMILY_MODELS["qwen3_5_moe"])
    expected = logits_after(loaded(tmp_path), prompt(), n_prefill=0)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for layer in range(2):
        prefix = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            np.stack([tensors.pop(f"{prefix}{i}.{part}_proj.weight") for i in range(6)])
            for part in ("gate", "up", "down")
        )
        tensors[f"{prefix}gate_up_proj"] = np.concatenate([gate, up], axis=1)
        tensors[f"{prefix}down_proj"] = down
    save_file(tensors, file)
    files, ops = ModelFiles.open(tmp_path), CpuOps("float32")
    weights = load_weights(files.tensors(), files.config, ops)
    model = Model(weights, files.config, ops, max_seq_len=128, chunk_size=64)
    assert np.array_equal(logits_after(model, prompt(), n_prefill=0), expected)
