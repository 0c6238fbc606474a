"""Attention over caches that go round: bit for bit that over caches that hold everything."""

from collections.abc import Callable

import numpy as np
import pytest

from engine.device.windows import KEY_BLOCK, goes_round
from engine.native import _cpu
from tests.engine.device.test_attention import KV_FORMATS, LAYERS, Layer, assert_same_bits
from tests.engine.device.test_branch_attention import Branched, Floats, alone

pytestmark = pytest.mark.usefixtures("one_thread")

PASS_ROWS = 64
LENGTH = 1600
WITH_WINDOW = {name: make for name, make in LAYERS.items() if make("float32", 1).window}


def round_layer(make: Callable[[str, int], Layer], kv: str, length: int = LENGTH) -> Layer:
    """A layer for `length` positions, whose caches hold no more than they must."""
    whole = make(kv, length)
    n = KEY_BLOCK
    while not goes_round(n, whole.window, PASS_ROWS):
        n += 1
    assert n < length / 2
    layer = make(kv, n)
    layer.cos, layer.sin = whole.cos, whole.sin
    return layer


def in_chunks(layer: Layer, qkv: Floats) -> Floats:
    """Chunks of sizes that do not divide the caches, for each of the ways to split the work."""
    parts: list[Floats] = []
    pos, sizes = 0, (PASS_ROWS, 37, 1, 16, 1, 17, 3)
    while pos < len(qkv):
        size = sizes[len(parts) % len(sizes)]
        parts.append(layer.run(qkv[pos : pos + size], pos))
        pos += size
    return np.concatenate(parts)


@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("make", WITH_WINDOW.values(), ids=WITH_WINDOW)
def test_a_cache_that_goes_round_loses_nothing_that_is_seen(
    make: Callable[[str, int], Layer], kv: str
) -> None:
    whole = make(kv, LENGTH)
    qkv = whole.rows(LENGTH)
    expected = whole.run_chunks(qkv, PASS_ROWS)
    for n_threads in (1, 2):
        _cpu.set_threads(n_threads)
        assert_same_bits(in_chunks(round_layer(make, kv), qkv), expected, f"{n_threads} threads")


def test_every_instruction_set_goes_round(isa: str) -> None:
    make = WITH_WINDOW["partial-rotary"]
    for kv in KV_FORMATS:
        qkv = make(kv, LENGTH).rows(LENGTH)
        expected = make(kv, LENGTH).run_chunks(qkv, PASS_ROWS)
        assert_same_bits(in_chunks(round_layer(make, kv), qkv), expected, kv)


@pytest.mark.parametrize("kv", KV_FORMATS)
@pytest.mark.parametrize("fork", [505, 768, 1000])
def test_branches_leave_the_cache_as_it_was(fork: int, kv: str) -> None:
    """Also where one is longer than the cache, beside short ones."""
    make = WITH_WINDOW["sinks-and-window"]
    n_tokens = (700, 5, 30)
    prefix = make(kv, 1).rows(fork, seed=1)
    tails = [make(kv, 1).rows(n, seed=2 + branch) for branch, n in enumerate(n_tokens)]
    wanted = [alone(make(kv, 1800), prefix, tail) for tail in tails]
    layer = round_layer(make, kv, 1800)
    branched = Branched(layer, prefix, n_branches=3, n_positions=700)
    before = layer.k, layer.v, layer.k_scales.copy(), layer.v_scales.copy()
    done = [0, 0, 0]
    while done[0] < n_tokens[0]:
        going = [b for b in range(3) if done[b] < n_tokens[b] and (b == 0 or done[0] > 600)]
        rows = [(b, fork + done[b]) for b in going]
        found = branched.run(rows, np.concatenate([tails[b][done[b] : done[b] + 1] for b in going]))
        for b, row in zip(going, found, strict=True):
            assert_same_bits(row, wanted[b][done[b]], f"branch {b}, row {done[b]}")
            done[b] += 1
    assert done == [*n_tokens]
    for old, now in zip(before, (layer.k, layer.v, layer.k_scales, layer.v_scales), strict=True):
        assert np.array_equal(old, now, equal_nan=kv == "float32" or old.dtype == np.float32)
