"""The bookkeeping of the KV cache."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from engine.cache.kv import KVCache
from engine.checkpoint.config import NO_ATTENTION, ModelConfig
from engine.checkpoint.config_json import model_config
from engine.checkpoint.recurrent import ShortConvConfig
from engine.device.cpu.kv import PanelHeadRows
from engine.device.open import open_ops


@pytest.fixture
def cache(tiny_model: Path) -> KVCache:
    config = model_config(tiny_model)
    return KVCache(config, open_ops(device="cpu", dtype="float32"), max_seq_len=8)


def test_memory_has_the_documented_shape(cache: KVCache) -> None:
    layers = [layer for layer in cache.layers if isinstance(layer, tuple)]
    rows = [cast(PanelHeadRows, rows) for layer in layers for rows in layer]
    shapes = [(part.n_kv_heads, part.max_seq_len, part.head_dim) for part in rows]
    assert shapes == [(2, 8, 16)] * 6
    first, *others = [part.panels for part in rows]
    assert first.size >= 2 * 8 * 16
    first[:] = 1
    assert not any(array.any() for array in others), "no two arrays share memory"


def test_append_rollback_clear(cache: KVCache) -> None:
    cache.append([5, 6, 7])
    cache.append([8])
    assert cache.length == 4
    cache.rollback(2)
    assert cache.token_ids == [5, 6]
    cache.rollback(2)
    assert cache.token_ids == [5, 6]
    cache.clear()
    assert cache.length == 0


@pytest.mark.parametrize("length", [-1, 3])
def test_rollback_goes_backwards_only(cache: KVCache, length: int) -> None:
    cache.append([5, 6])
    with pytest.raises(ValueError, match=f"rollback to {length}: the cache holds positions 0 to 2"):
        cache.rollback(length)


def test_append_beyond_the_end_is_refused_and_changes_nothing(cache: KVCache) -> None:
    cache.append([1] * 6)
    with pytest.raises(ValueError, match="3 tokens do not fit: the cache holds 6 of 8"):
        cache.append([2, 3, 4])
    assert cache.token_ids == [1] * 6


@pytest.mark.parametrize(
    ("token_ids", "n"),
    [([], 0), ([1], 1), ([2], 0), ([1, 2, 3], 3), ([1, 2, 3, 4, 5], 3), ([1, 9, 3], 1)],
)
def test_common_prefix(cache: KVCache, token_ids: list[int], n: int) -> None:
    cache.append([1, 2, 3])
    assert cache.common_prefix(token_ids) == n


def hybrid(config: ModelConfig) -> ModelConfig:
    """Its first layer is recurrent; the attention of the others has a window."""
    first, *others = config.layers
    conv = ShortConvConfig(dim=config.dim, kernel=3)
    windows = [replace(each, attention=replace(each.attention, window=12)) for each in others]
    return replace(
        config, layers=(replace(first, attention=NO_ATTENTION, recurrent=conv), *windows)
    )


def test_states_bound_how_far_a_sequence_goes_back(tiny_model: Path) -> None:
    ops = open_ops(device="cpu", dtype="float32")
    cache = KVCache(hybrid(model_config(tiny_model)), ops, max_seq_len=2000, pass_rows=16)
    cache.begin_pass(40)
    cache.append(range(40))
    assert [cache.reachable(n) for n in (40, 24, 20, 3, 0)] == [40, 24, 20, 0, 0]
    cache.rollback(3)
    assert cache.length == 3
    assert not cache.is_whole
    with pytest.raises(ValueError, match="the cache has lost what token 3 needs"):
        cache.begin_pass(1)
    cache.forget_from(3)
    assert cache.length == 0
    assert cache.is_whole


def test_windows_beside_recurrent_layers_hold_everything(tiny_model: Path) -> None:
    config, ops = hybrid(model_config(tiny_model)), open_ops(device="cpu", dtype="float32")
    cache = KVCache(config, ops, max_seq_len=2000, pass_rows=16)
    assert config.kv_windows == (12, 12)
    assert not cache.goes_round
    assert {n for _, n, _ in cache.shapes} == {2000}
