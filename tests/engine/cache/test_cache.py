"""The bookkeeping of the KV cache."""

from pathlib import Path
from typing import cast

import pytest

from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
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
