"""Families whose layers are not Llama's, on CUDA: whole models on the emulator against the decoder
in torch, with nothing left to torch.
"""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from engine.checkpoint.config_json import model_config
from engine.device.cuda.lacking import lacking_parts
from engine.device.cuda.ops import CudaOps
from engine.device.torch_ops import TorchOps
from engine.sampling.logits import Logits
from tests.engine.model.test_model_parity import empty_cache, loaded, prompt
from tests.support.cuda_module import cuda, device_of
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model

__all__ = ["cuda"]

pytestmark = pytest.mark.timeout(600)

FAMILIES = ["qwen3_moe", "qwen2_moe", "gpt_oss-blocks", "granitemoe", "gemma2", "smollm3", "arcee"]


def saved(path: Path, name: str) -> Path:
    """A random model whose matrices bfloat16 holds."""
    save_model(path, FAMILY_MODELS[name])
    file = path / "model.safetensors"
    tensors = {
        key: values.bfloat16().float() if values.is_floating_point() else values
        for key, values in load_file(file).items()
    }
    save_file(tensors, file)
    return path


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_the_decoder_in_torch(
    cuda: ModuleType, tmp_path: Path, name: str
) -> None:
    path = saved(tmp_path, name)
    assert lacking_parts(model_config(path)) == []
    token_ids = prompt(30)
    expected = _logits(path, TorchOps("cpu", "float32"), token_ids)
    found = _logits(path, CudaOps(device_of(cuda), cuda, "bfloat16"), token_ids)
    # Keys and values are bfloat16; then so is all of a chunk.
    for rows, tolerance in ((slice(0, 4), 2e-2), (slice(4, None), 5e-2)):
        error = np.linalg.norm(found[rows] - expected[rows]) / np.linalg.norm(expected[rows])
        assert error < tolerance, rows


def _logits(path: Path, ops: CudaOps | TorchOps, token_ids: list[int]) -> Logits:
    """Of some tokens behind others in steps, and behind a chunk of a prompt."""
    model = loaded(path, ops=ops, max_seq_len=64)
    rows = []
    for n_prefill in (5, 22):
        cache = empty_cache(model)
        assert model.prefill(token_ids[:n_prefill], cache)
        rows.append(model.decode(token_ids[n_prefill : n_prefill + 1], cache).copy())
        rows.append(model.decode(token_ids[n_prefill + 1 : n_prefill + 4], cache).copy())
    return np.concatenate(rows)


def test_blocks_of_mxfp4_stay_what_they_are(cuda: ModuleType, tmp_path: Path) -> None:
    path = saved(tmp_path, "gpt_oss-blocks")
    for format_ in ("bfloat16", "8bit"):
        model = loaded(path, ops=CudaOps(device_of(cuda), cuda, format_), max_seq_len=64)
        experts = model.weights.layers[0].experts
        assert experts is not None
        assert {each.format for each in (*experts.gate_up, *experts.down)} == {"mxfp4"}
        assert model.weights.layers[0].wo.format == format_
