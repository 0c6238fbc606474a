"""Branches of a sequence: rows of one pass are those of the branches alone, bit for bit."""

from collections.abc import Sequence

import numpy as np
import pytest

from engine import DEFAULT_MODEL, Engine
from engine.cache.kv import KVCache
from engine.device.torch_ops import open_torch
from engine.model.branches import Branches, BranchRow, PassesInTurn
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.engine.model.test_model_parity import loaded

TAILS = ([5, 900, 17, 300], [6, 5, 4, 3], [2000, 5, 900, 17])


def after(model: Model, token_ids: Sequence[int]) -> list[Logits]:
    """The logits after each token, one pass per token."""
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    return [model.decode([token_id], cache)[0].copy() for token_id in token_ids]


def check(branches: Branches, model: Model, prefix: list[int]) -> None:
    wanted = [after(model, [*prefix, *tail])[len(prefix) :] for tail in TAILS]
    for i in range(4):
        rows = [BranchRow(b, tail[i], len(prefix) + i) for b, tail in enumerate(TAILS)]
        found = branches.decode(rows)
        for branch, row in enumerate(found):
            assert np.array_equal(row, wanted[branch][i])
    # One goes back and on, alone.
    again = branches.decode([BranchRow(1, TAILS[0][0], len(prefix))])
    assert np.array_equal(again[0], wanted[0][0])
    further = branches.decode([BranchRow(1, TAILS[0][1], len(prefix) + 1)])
    assert np.array_equal(further[0], wanted[0][1])


@pytest.mark.parametrize("kv_cache", ["auto", "8bit", "k8v4", "4bit"])
def test_rows_of_one_pass_are_the_branches(kv_cache: str) -> None:
    model = Engine.load(DEFAULT_MODEL, device="cpu", kv_cache=kv_cache).model
    prefix = list(range(300, 321))
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    model.prefill(prefix, cache)
    branches = model.branches(cache, n_positions=4)
    assert not isinstance(branches, PassesInTurn)
    check(branches, model, prefix)
    check(PassesInTurn(cache, lambda token_id: model.decode([token_id], cache)), model, prefix)
    assert cache.token_ids == prefix
    # The cache is as it was, though another prefix has branched meanwhile.
    model.branches(cache, n_positions=100).decode([BranchRow(0, 7, len(prefix))])
    found = model.decode([7], cache)[0]
    assert np.array_equal(found, after(model, [*prefix, 7])[-1])


def test_devices_without_such_passes_take_turns() -> None:
    model = loaded(DEFAULT_MODEL, ops=open_torch("cpu", "float32"))
    prefix = list(range(300, 321))
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    model.prefill(prefix[:-1], cache)
    model.decode(prefix[-1:], cache)
    branches = model.branches(cache, n_positions=4)
    assert isinstance(branches, PassesInTurn)
    rows = [BranchRow(b, tail[0], len(prefix)) for b, tail in enumerate(TAILS)]
    found = branches.decode(rows)
    for row, tail in zip(found, TAILS, strict=True):
        assert np.allclose(row, after(model, [*prefix, tail[0]])[-1], atol=1e-3)
    assert cache.token_ids == prefix
