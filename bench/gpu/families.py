"""Families whose layers are not Llama's, with the native kernels and beside torch: mixtures of
experts, windows, sinks and caps. A few layers each, with their real sizes and random weights, from
a file as users have it.

Owns which families, and what is measured of each.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.benchmark import profile_step
from engine.benchmark.speed import prefill_rate, prompt_ids
from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors, expected_shapes
from engine.device.cuda.lacking import lacking_parts
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.sampling.logits import Logits

from .limits import Limits
from .own import pass_seconds, release
from .place import AMOUNT, DEVICE, IS_REHEARSAL, open_device

# Behind so many tokens a pass is timed.
_CONTEXT = 8 if IS_REHEARSAL else 512
_ROWS = 4

_REAL: dict[str, dict[str, Any]] = {
    "qwen3-moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151_936, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True,
    },
    "gpt-oss": {
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 2880, "num_hidden_layers": 2, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201_088, "num_local_experts": 32,
        "num_experts_per_tok": 4, "intermediate_size": 2880, "sliding_window": 128,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "hidden_size": 2304, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256_000,
        "intermediate_size": 9216, "sliding_window": 4096,
    },
}  # fmt: skip
_TINY = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 100, "intermediate_size": 48, "moe_intermediate_size": 48,
}  # fmt: skip
_FEW = {"num_experts": 8, "num_local_experts": 8, "sliding_window": 12}
# Each in the format that people run it in.
CASES = {"qwen3-moe": "4bit", "gpt-oss": "8bit", "gemma2": "bfloat16"}


def measure(
    name: str, limits: Limits, directory: Path, put: Callable[[dict[str, Any]], None]
) -> None:
    """A decode step, several rows, a prompt, and how far the logits are from torch's."""
    path = _saved(name, directory / name)
    try:
        native = _opened(path, open_device(CASES[name]))
        put(_figures("", native))
        profile = profile_step(native, steps=min(10, AMOUNT.tokens))
        n_bytes = sum(op.n_bytes for op in profile)
        seconds = pass_seconds(native, _filled(native), 1)
        put({"gb": n_bytes / 1e9, "share": n_bytes / seconds / limits.read_bytes})
        put({"profile": [{"name": op.name, "count": op.count, "us": op.us} for op in profile]})
        del native
        release()
        put(_figures("torch_", _opened(path, TorchOps(DEVICE, "bfloat16"))))
        release()
        # The weights of both as they are in the file.
        pair = [_logits(_opened(path, ops)) for ops in _exact()]
        put({"from_torch": float(np.linalg.norm(pair[0] - pair[1]) / np.linalg.norm(pair[1]))})
    finally:
        shutil.rmtree(path)


def _saved(name: str, path: Path) -> Path:
    """A model directory. Raises AssertionError if torch would compute a part of it."""
    path.mkdir(parents=True)
    own = _REAL[name]
    few = {key: value for key, value in _FEW.items() if key in own}
    config = {**own, **({**_TINY, **few} if IS_REHEARSAL else {})}
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    lacking = lacking_parts(model_config(path))
    assert not lacking, f"{name}: no kernels for {', '.join(lacking)}"
    from safetensors.torch import save_file

    tensors = {
        key: torch.randn(shape, dtype=torch.bfloat16, device=DEVICE).mul_(shape[-1] ** -0.5).cpu()
        for key, shape in expected_shapes(model_config(path)).items()
    }
    save_file(tensors, path / "model.safetensors")
    return path


def _opened(path: Path, ops: Ops) -> Model:
    config = model_config(path)
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    length = max(*AMOUNT.prompts, _CONTEXT) + 4 * _ROWS
    return Model(weights, config, ops, max_seq_len=length)


def _exact() -> Iterator[Ops]:
    yield open_device("bfloat16")
    yield TorchOps(DEVICE, "bfloat16")


def _filled(model: Model) -> KVCache:
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    model.prefill(prompt_ids(model.config.vocab_size, _CONTEXT), cache)
    return cache


def _figures(prefix: str, model: Model) -> dict[str, float]:
    cache = _filled(model)
    one, several = (pass_seconds(model, cache, n) for n in (1, _ROWS))
    n_tokens = max(AMOUNT.prompts)
    rate = prefill_rate(model, cache, n_tokens=n_tokens)
    return {
        f"{prefix}decode_ms": 1e3 * one,
        f"{prefix}{_ROWS}_rows_ms": 1e3 * several,
        f"{prefix}prefill_{n_tokens}_tps": rate,
    }


def _logits(model: Model) -> Logits:
    """Of some tokens behind a prompt; the model is released."""
    rows = model.decode(prompt_ids(model.config.vocab_size, _ROWS, seed=1), _filled(model)).copy()
    del model
    release()
    return rows
