"""What keys in 4 bits are stored without: it makes them more exact, and belongs to the model."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine import DEFAULT_MODEL, Engine
from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.cpu.ops import CpuOps
from engine.fingerprint import fingerprint, with_common_keys
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.sampling.logits import Logits

Doubles = npt.NDArray[np.float64]
N_TOKENS = 90


def model_of(path: Path, kv_cache: str, *, shares_keys: bool) -> Model:
    ops = CpuOps("float32", kv_cache=kv_cache, n_threads=1)
    ops.shares_keys = shares_keys
    config = model_config(path)
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    return Model(weights, config, ops, max_seq_len=N_TOKENS)


def logits_of(model: Model) -> Doubles:
    cache = KVCache(model.config, model.ops, max_seq_len=N_TOKENS)
    token_ids = [(7 * i + 3) % model.config.vocab_size for i in range(N_TOKENS)]
    rows: list[Logits] = []
    model.prefill(token_ids, cache, on_logits=lambda some: rows.append(some.copy()))
    return np.concatenate(rows).astype(np.float64)


def test_logits_are_nearer_to_those_of_whole_keys() -> None:
    exact = logits_of(model_of(DEFAULT_MODEL, "float32", shares_keys=False))
    whole, shared = (
        np.square(logits_of(model_of(DEFAULT_MODEL, "4bit", shares_keys=each)) - exact).mean()
        for each in (False, True)
    )
    assert 0 < shared < 0.8 * whole


def test_a_fingerprint_covers_them(tiny_model: Path) -> None:
    config = model_config(tiny_model)
    tensors = check_tensors(read_checkpoint(tiny_model), config)
    ops = CpuOps("float32", kv_cache="4bit", n_threads=1)
    found = [np.zeros((2, 3, 16), np.float32), np.ones((2, 3, 16), np.float32)]
    of_files = fingerprint(tiny_model, tensors, ops)
    digits = {with_common_keys(of_files, each) for each in ([], found[:1], found[1:], found)}
    assert len(digits) == 4
    assert of_files in digits


def test_they_are_the_same_in_every_load(tiny_model: Path) -> None:
    first, second = (
        Engine.load(tiny_model, device="cpu", kv_cache="4bit", n_threads=n) for n in (1, 2)
    )
    layers = zip(first.model.weights.layers, second.model.weights.layers, strict=True)
    for one, other in layers:
        assert np.array_equal(np.asarray(one.common_keys), np.asarray(other.common_keys))
    assert first.fingerprint == second.fingerprint
    plain = Engine.load(tiny_model, device="cpu", kv_cache="8bit")
    assert all(layer.common_keys is None for layer in plain.model.weights.layers)
