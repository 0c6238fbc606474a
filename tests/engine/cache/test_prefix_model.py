"""Keys and values that were copied out and in equal the computed ones, bit for bit."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.cache.reuse import Reuse
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.cpu.kv import CpuPositions, PanelHeadRows, kv_memory
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.device.reference import TorchHeadRows
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.support.tiny_models import VOCAB_SIZE, save_model

CHUNK = 16
MAX_SEQ_LEN = 150  # no whole panel

OPS: dict[str, Callable[[], Ops]] = {
    "float32": lambda: open_ops(device="cpu", dtype="float32"),
    "bfloat16": lambda: open_ops(device="cpu", dtype="bfloat16", kv_cache="bfloat16"),
    "8bit": lambda: open_ops(device="cpu", quantize="8bit", kv_cache="8bit"),
    "k8v4": lambda: open_ops(device="cpu", kv_cache="k8v4"),
    "4bit": lambda: open_ops(device="cpu", kv_cache="4bit"),
    "torch": lambda: TorchOps("cpu", "float32"),
    "torch bfloat16": lambda: TorchOps("cpu", "bfloat16"),
}
NATIVE = ["float32", "bfloat16", "8bit", "k8v4", "4bit"]
CASES = [(kind, name) for kind in NATIVE for name in ("qwen3", "llama-mqa", "mistral-window")]
CASES += [("torch", "qwen3"), ("torch bfloat16", "llama")]


def loaded(path: Path, ops: Ops) -> Model:
    config = model_config(path)
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    return Model(weights, config, ops, max_seq_len=MAX_SEQ_LEN)


def empty_cache(model: Model) -> KVCache:
    return KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN)


def prompt(n: int, seed: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, VOCAB_SIZE, n).tolist()
    return ids


class Server:
    """A model with one cache, on which its passes are recorded once."""

    def __init__(self, model: Model, *, n_chunks: int, directory: Path | None = None) -> None:
        self.model = model
        self.cache = empty_cache(model)
        self.prefix = PrefixCache(
            self.cache,
            block=CHUNK,
            byte_budget=n_chunks * self.cache.positions.n_bytes(CHUNK),
            directory=directory,
        )

    def answer(self, token_ids: list[int], n: int = 5) -> tuple[list[Logits], Reuse]:
        """The logits of a greedy answer."""
        reuse = self.prefix.prepare(token_ids[:-1])
        assert self.model.prefill(token_ids[reuse.n_reused : -1], self.cache)
        logits, last = [], token_ids[-1]
        for _ in range(n):
            logits.append(self.model.decode([last], self.cache)[0].copy())
            last = int(logits[-1].argmax())
        return logits, reuse


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_alternating_conversations_answer_as_each_alone(
    tmp_path: Path, kind: str, name: str
) -> None:
    save_model(tmp_path, name)
    model = loaded(tmp_path, OPS[kind]())
    # In torch's float32, products of many rows round differently from those of one.
    exact = not kind.startswith("torch")
    server = Server(model, n_chunks=1000)
    first, second = prompt(90, 1), prompt(70, 2)
    for n_first, n_second in ((40, 33), (41, 49), (83, 70), (90, 70)):
        for token_ids in (first[:n_first], second[:n_second]):
            logits, reuse = server.answer(token_ids)
            expected, _ = Server(model, n_chunks=0).answer(token_ids)
            if exact:
                assert np.array_equal(logits, expected), reuse
            elif kind == "torch":
                np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=0)
    assert reuse.n_reused == reuse.n_wanted == 69
    assert reuse.source == "memory"


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_sequence_goes_on_in_another_cache_as_in_its_own(
    tmp_path: Path, kind: str, name: str
) -> None:
    """Also from the disk, into a longer cache, and cut within a block."""
    save_model(tmp_path, name)
    model = loaded(tmp_path, OPS[kind]())
    token_ids, others = prompt(75, 3), prompt(20, 4)
    server = Server(model, n_chunks=1000, directory=tmp_path / "prefixes")
    model.prefill(token_ids, server.cache)
    server.prefix.flush()
    for n in (75, 52, 17, 5):
        own = KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN + 20)
        model.prefill(token_ids, own)
        own.rollback(n)
        later = KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN + 40)
        prefix = PrefixCache(
            later,
            block=CHUNK,
            byte_budget=100 * later.positions.n_bytes(CHUNK),
            directory=tmp_path / "prefixes",
        )
        reuse = prefix.prepare([*token_ids[:n], *others])
        assert (reuse.n_reused, reuse.source) == (n, "disk")
        for token_id in others:
            expected = model.decode([token_id], own).copy()
            assert np.array_equal(model.decode([token_id], later), expected), n


@pytest.mark.parametrize("kind", OPS)
@pytest.mark.parametrize("head_dim", [1, 17, 64, 80, 128])
@pytest.mark.parametrize("max_seq_len", [33, 64])
def test_a_copy_moves_its_positions_and_no_others(
    kind: str, head_dim: int, max_seq_len: int
) -> None:
    """Every byte of a cache, whatever it means."""
    ops = OPS[kind]()
    first, second = (sized_cache(ops, head_dim, max_seq_len) for _ in range(2))
    fill(first, 1)
    fill(second, 2)
    n = first.positions.n_bytes(20)
    copied = np.zeros(n + 7, np.uint8)
    first.positions.copy_out(0, 20, copied)
    assert not copied[n:].any()
    before = content(second, 0, 33)
    second.positions.copy_in(0, 20, copied, n_copied=20)
    assert content(second, 0, 20) == content(first, 0, 20)
    assert content(second, 32, 33) == before[32:]
    # The first of more, elsewhere.
    third = sized_cache(ops, head_dim, max_seq_len)
    third.positions.copy_in(16, 21, copied, n_copied=20)
    assert content(third, 16, 21) == content(first, 0, 5)
    zeros = content(sized_cache(ops, head_dim, max_seq_len), 0, 16)
    assert content(third, 0, 16) == zeros


def test_blocks_of_panels_cannot_be_split() -> None:
    cache = sized_cache(OPS["float32"](), 8, 64)
    memory = np.zeros(cache.positions.n_bytes(64), np.uint8)
    with pytest.raises(ValueError, match="positions 8 to 24"):
        cache.positions.copy_out(8, 24, memory)
    with pytest.raises(ValueError, match="blocks 1 to 5 of a cache of 4"):
        cache.positions.copy_out(16, 80, memory)
    with pytest.raises(ValueError, match="positions 0 to 17 of a copy of 16"):
        cache.positions.copy_in(0, 17, memory, n_copied=16)


def test_layers_must_follow_each_other_in_memory() -> None:
    memory = kv_memory([(1, 16, 8)] * 2, "float32", n_touched=0)
    keys, values = (cast(list[PanelHeadRows], rows) for rows in memory[:2])
    with pytest.raises(ValueError, match="layers must follow each other in memory"):
        CpuPositions(keys[::-1], values)


class Sizes:
    """The fields of a ModelConfig that a cache reads."""

    layers = (SimpleNamespace(recurrent=None),) * 3
    kv_places = (0, 1, 2)
    kv_windows = (0, 0, 0)
    state_shapes = ()

    def __init__(self, head_dim: int) -> None:
        self.kv_shapes = [(2, head_dim)] * 3


def sized_cache(ops: Ops, head_dim: int, max_seq_len: int) -> KVCache:
    return KVCache(cast(ModelConfig, Sizes(head_dim)), ops, max_seq_len=max_seq_len)


def fill(cache: KVCache, seed: int) -> None:
    random = np.random.default_rng(seed)
    for rows in (rows for layer in cache.layers if isinstance(layer, tuple) for rows in layer):
        if isinstance(rows, TorchHeadRows):
            rows.rows.copy_(torch.from_numpy(random.standard_normal(tuple(rows.rows.shape))))
        else:
            assert isinstance(rows, PanelHeadRows)
            rows.panels.view(np.uint8)[:] = random.integers(
                0, 256, rows.panels.view(np.uint8).shape, np.uint8
            )
            if rows.scales is not None:
                scales = rows.scales.view(np.uint8)
                scales[:] = random.integers(0, 256, scales.shape, np.uint8)


def content(cache: KVCache, start: int, stop: int) -> list[bytes]:
    """Everything that belongs to each position, as csrc/cpu/attention.h says."""
    return [b"".join(_content(cache, position)) for position in range(start, stop)]


def _content(cache: KVCache, position: int) -> Iterator[bytes]:
    for layer in cache.layers:
        assert isinstance(layer, tuple)
        for is_value, rows in enumerate(layer):
            if isinstance(rows, TorchHeadRows):
                yield rows.rows[:, position].contiguous().view(torch.uint8).numpy().tobytes()
                continue
            assert isinstance(rows, PanelHeadRows)
            n_heads, padded_length, width = rows.panels.shape
            in_halves = rows.format == "4bit"
            padded_dim = width * (2 if in_halves else 1)
            group = 4 // rows.panels.itemsize  # bytes, of which each has two elements of 4bit
            per_lane = group * padded_dim // width
            if is_value:
                heads = rows.panels.reshape(n_heads, -1)
                place = (0, 2, 1, 3)[position % group] if group == 4 else position % group
                cuts = [heads.shape[1] * dim // padded_dim for dim in range(64, padded_dim, 64)]
                for part in np.split(heads, cuts, axis=1):
                    lanes = part.reshape(n_heads, padded_length // per_lane, -1, group)
                    found = lanes[:, position // per_lane, :, place]
                    if in_halves:
                        found = found >> (position % per_lane // group * 4) & 15
                    yield found.tobytes()
            else:
                panels = rows.panels.reshape(n_heads, padded_length // 16, -1, 16, group)
                yield panels[:, position // 16, :, position % 16].tobytes()
            if rows.scales is not None:
                yield rows.scales[:, position].tobytes()
