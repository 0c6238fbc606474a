"""What the CUDA kernels lack of a family: torch computes such a model, and the start says why."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import ModelLoadError
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config
from engine.device import torch_ops
from engine.device.arguments import Embed, Heads, NormLinear
from engine.device.cuda.lacking import check_kernels, lacking_parts
from engine.device.open import open_ops
from engine.device.reference import TorchMatrix
from engine.native import cuda as cuda_native

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def config_of(path: Path, family: str, **keys: Any) -> ModelConfig:
    values = {**SIZES, **keys, "architectures": [f"{family}ForCausalLM"]}
    (path / "config.json").write_text(json.dumps(values), "utf-8")
    return model_config(path)


COMPLETE = [
    "Llama", "Mistral", "Qwen2", "Qwen3", "SeedOss", "Ernie4_5", "SmolLM3", "Arcee", "Gemma2",
    "Gemma3", "Granite", "Glm4", "Qwen3Moe", "Qwen2Moe", "Mixtral", "GraniteMoe", "Glm4Moe",
    "GptOss",
]  # fmt: skip


@pytest.mark.parametrize("family", COMPLETE)
def test_nothing_is_lacking(tmp_path: Path, family: str) -> None:
    keys = {"head_dim": 16} if family != "Qwen2" else {}
    assert lacking_parts(config_of(tmp_path, family, num_hidden_layers=4, **keys)) == []


@pytest.mark.parametrize(
    ("family", "parts"),
    [
        ("HunYuanDenseV1", ["other norms of queries and keys"]),
        ("Nemotron", ["LayerNorm"]),
        ("Apertus", ["the activation xielu"]),
        (
            "Qwen3Next",
            ["recurrent layers", "gated attention"],
        ),
    ],
)
def test_what_is_lacking_is_named(tmp_path: Path, family: str, parts: list[str]) -> None:
    config = config_of(tmp_path, family, num_hidden_layers=4)
    assert lacking_parts(config) == parts


def test_torch_computes_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cuda_native, "MISSING", "")
    monkeypatch.setattr(torch_ops, "check_cuda", lambda device: None)
    monkeypatch.setattr(torch_ops, "too_old", lambda device: "")
    models = [config_of(tmp_path, "HunYuanDenseV1")]
    ops = open_ops(device="cuda", models=models)
    assert isinstance(ops, torch_ops.TorchOps)
    lacks = "it has no kernels for other norms of queries and keys"
    assert f"using torch instead: {lacks}" in caplog.text
    with pytest.raises(ModelLoadError, match=f"quantize: 8bit needs native code, .*: {lacks}"):
        open_ops(device="cuda", quantize="8bit", models=models)
    with pytest.raises(ModelLoadError, match=lacks):
        open_ops(device="cuda", models=models, require_native=True)


def test_an_op_without_a_kernel_is_refused() -> None:
    rows, vector = torch.zeros(1, 32), torch.ones(32)
    matrix = TorchMatrix(torch.zeros(32, 32), "float32")
    plain: dict[str, Any] = {
        "residual": rows,
        "norm": vector,
        "eps": 1e-5,
        "matrix": matrix,
        "out": rows.clone(),
    }
    check_kernels(NormLinear(**plain))
    for op in (
        NormLinear(**plain, centered=True),
        NormLinear(**plain, activation="silu"),
        Embed(table=matrix, positions=vector, out=rows),
        Heads(qkv=rows, n_heads=2, n_kv_heads=0, head_dim=16, eps=1e-5),
    ):
        with pytest.raises(ValueError, match="no CUDA kernel computes it"):
            check_kernels(op)
