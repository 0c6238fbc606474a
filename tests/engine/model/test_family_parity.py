"""Every family against transformers: the same weights must give the same logits and tokens."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine.device.open import open_ops
from engine.device.torch_ops import TorchOps
from engine.model.branches import BranchRow
from engine.model.model import Model
from engine.native.cpu import kernels
from engine.sampling.logits import Logits
from tests.engine.model.test_model_parity import (
    assert_close,
    empty_cache,
    loaded,
    logits_after,
    oracle_logits,
    prompt,
)
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model

N_PREFILL = 85  # of 100: beyond every window and original context


class Case(NamedTuple):
    """A saved model, the model as it is loaded natively, and what transformers computes."""

    path: Path
    oracle: Any
    model: Model
    expected: Logits


@pytest.fixture(scope="module", params=sorted(FAMILY_MODELS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("family")
    oracle = save_model(path, FAMILY_MODELS[request.param])
    expected = oracle_logits(oracle, prompt())
    return Case(path, oracle, loaded(path, max_seq_len=160), expected)


def test_logits_equal_those_of_transformers(case: Case) -> None:
    """One by one; and the same bits after a prompt, with several rows at once as drafts have."""
    assert case.expected.std() > 0.1, "the test model must say something"
    token_ids, model = prompt(), case.model
    one_by_one = logits_after(model, token_ids, n_prefill=0)
    assert_close(one_by_one, case.expected)
    cache = empty_cache(model)
    model.prefill(token_ids[:N_PREFILL], cache)
    assert np.array_equal(model.decode(token_ids[N_PREFILL:], cache), one_by_one[N_PREFILL:])


def test_torch_computes_the_same(case: Case) -> None:
    model = loaded(case.path, ops=TorchOps("cpu", "float32"), chunk_size=60)
    assert_close(logits_after(model, prompt(), n_prefill=97), case.expected[97:])


def test_greedy_tokens_equal_those_of_transformers(case: Case) -> None:
    cache = empty_cache(case.model)
    ours = prompt(12, seed=3)
    case.model.prefill(ours[:-1], cache)
    for _ in range(64):
        ours.append(int(np.asarray(case.model.decode(ours[-1:], cache)[0]).argmax()))
    # One pass over the whole text checks every step of it.
    expected = oracle_logits(case.oracle, ours[:-1])[11:].argmax(axis=1).tolist()
    assert ours[12:] == expected


def test_in_4_bits_logits_do_not_depend_on_how_the_ids_came(case: Case) -> None:
    """Bit for bit: one by one, several rows at once, chunks, rewound; and close to float32."""
    token_ids = prompt()[:48]
    model = loaded(case.path, ops=open_ops(device="cpu", quantize="4bit"), chunk_size=17)
    kernels.set_threads(1)
    expected = logits_after(model, token_ids, n_prefill=0)
    kernels.set_threads(2)
    cache = empty_cache(model)
    model.prefill(token_ids[:40], cache)
    assert np.array_equal(model.decode(token_ids[40:], cache), expected[40:])
    cache.rollback(43)
    assert np.array_equal(model.decode(token_ids[43:46], cache), expected[43:46])
    exact = case.expected[:48]
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(exact, axis=1)
    assert ((expected * exact).sum(axis=1) / lengths).mean() > 0.85


def test_a_branch_is_what_it_is_alone(case: Case) -> None:
    """Bit for bit, at positions that other branches have too."""
    model, (prefix, tails) = case.model, (prompt(20), (prompt(3, seed=1), prompt(3, seed=2)))
    expected = [logits_after(model, prefix + tail, n_prefill=0)[20:] for tail in tails]
    cache = empty_cache(model)
    model.prefill(prefix, cache)
    branches = model.branches(cache, n_positions=3)
    for i in range(3):
        rows = [BranchRow(branch, tail[i], 20 + i) for branch, tail in enumerate(tails)]
        for found, alone in zip(branches.decode(rows), expected, strict=True):
            assert np.array_equal(found, alone[i])


def test_a_llama_runs_no_op_of_other_families(tmp_path: Path) -> None:
    save_model(tmp_path, num_hidden_layers=2)
    model = loaded(tmp_path)
    names = [op.name.split()[0] for op in model.profile([1], empty_cache(model))]
    layer = ["norm_linear", "attention", "linear", "norm_linear", "linear"]
    assert names == ["embed", *2 * layer, "norm_linear"]
