"""What weights of few bits cost, and the file that makes the question a fair one."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from bench.peer.freed import noisy, write_freed
from bench.weight_quality import measure
from engine import DEFAULT_MODEL
from tests.engine.model.test_kv_quality import STORY

PAIR = Path(__file__).parents[1] / "gguf" / "pairs" / "odd-Q4_0.gguf"


def test_the_perplexity_of_a_story() -> None:
    losses = measure(DEFAULT_MODEL, 2 * STORY, ["none", "8bit", "4bit"], None, 256)
    none, eight, four = losses
    assert none.n_bytes > eight.n_bytes > four.n_bytes
    assert eight.perplexity < 1.01 * none.perplexity
    assert four.perplexity < 1.05 * none.perplexity
    assert 0 < eight.divergence < four.divergence


def test_noise_stays_within_half_a_step() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((4, 64), np.float32)
    blocks = values.reshape(-1, 32)
    half = (blocks.max(-1, keepdims=True) - blocks.min(-1, keepdims=True)) / 30
    moved = np.abs(noisy(values, rng).reshape(-1, 32) - blocks)
    assert (moved <= half * 1.0001).all()
    assert moved.mean() > 0.3 * half.mean()


def test_a_freed_file_says_the_same_beside_its_own(tmp_path: Path) -> None:
    freed = tmp_path / "freed.gguf"
    write_freed(PAIR, freed)
    stored_as = {tensor.name: tensor for tensor in gguf.GGUFReader(PAIR).tensors}
    for tensor in gguf.GGUFReader(freed).tensors:
        before = stored_as[tensor.name]
        values = gguf.dequantize(before.data, before.tensor_type)
        moves = values.ndim > 1 and tensor.name != "token_embd.weight"
        assert tensor.tensor_type.name == "F32"
        assert np.array_equal(tensor.data, values) != moves, tensor.name
        assert np.abs(tensor.data - values).max() <= np.ptp(values) / 30
    free, stored = measure(freed, STORY, ["none"], PAIR, 64)
    assert stored.format == PAIR.name
    assert stored.n_bytes < free.n_bytes
    assert stored.n_tokens == free.n_tokens
    assert stored.perplexity == pytest.approx(free.perplexity, rel=0.1)
