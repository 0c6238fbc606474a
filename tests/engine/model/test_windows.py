"""A window costs a window: caches of layers with a window hold the last positions only, and nothing
that a model says depends on that.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine.abort import AbortFlag
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.description import describe
from engine.device.cpu.kv import PanelHeadRows
from engine.device.memory import context_length
from engine.device.open import open_ops
from engine.device.torch_ops import TorchOps
from engine.device.windows import kv_bytes, kv_shapes
from engine.model.branches import Branches, BranchRow, PassesInTurn
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.engine.model.test_model_parity import loaded, oracle_logits, prompt
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import FAMILIES, save_model

MODELS = {**FAMILY_MODELS, **FAMILIES}
# Everywhere and in some layers, soft caps, two kinds of rope, none, parallel blocks, shared keys,
# experts, and positions that an op before attention depends on.
NAMES = (
    "mistral-window", "qwen2-layer-types", "gemma2", "gemma3", "gemma4-shared", "cohere2", "olmo3",
    "mixtral", "ministral3-window",
)  # fmt: skip
# Those that transformers computes quickly.
COMPARED = ("mistral-window", "qwen2-layer-types", "gemma3", "cohere2")
MAX_SEQ_LEN = 900
PASS_ROWS = 48
ROUND = 512  # window, rows of a pass and 256 more, in whole blocks of 256
N_TOKENS = 790


class Case(NamedTuple):
    name: str
    oracle: Any
    model: Model
    token_ids: list[int]
    expected: Logits
    """The logits after each token, with a cache that holds everything."""


def round_cache(model: Model) -> KVCache:
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len, pass_rows=PASS_ROWS)
    assert cache.goes_round
    return cache


def whole_cache(model: Model) -> KVCache:
    n = model.max_seq_len
    cache = KVCache(model.config, model.ops, max_seq_len=n, pass_rows=n)
    assert not cache.goes_round
    return cache


def all_logits(model: Model, token_ids: list[int], cache: KVCache) -> Logits:
    """After each of the tokens, with prompts in chunks."""
    found: list[Logits] = []
    model.prefill(token_ids, cache, on_logits=lambda rows: found.append(rows.copy()))
    return np.concatenate(found)


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("windows")
    oracle = save_model(path, MODELS[request.param], max_position_embeddings=1024)
    model = loaded(path, max_seq_len=MAX_SEQ_LEN, chunk_size=100)
    token_ids = prompt(N_TOKENS)
    return Case(
        request.param, oracle, model, token_ids, all_logits(model, token_ids, whole_cache(model))
    )


def test_logits_are_those_of_transformers_far_beyond_the_window(case: Case) -> None:
    found = all_logits(case.model, case.token_ids, round_cache(case.model))
    assert np.array_equal(found, case.expected)
    if case.name not in COMPARED:
        return
    # Far from the beginning, angles in float32 are less exact, here and there.
    oracle = oracle_logits(case.oracle, case.token_ids[: ROUND + 100])
    far = slice(ROUND - 20, ROUND + 100)
    np.testing.assert_allclose(found[far], oracle[far], atol=5e-4, rtol=0)


def test_drafts_and_rollbacks_across_the_seam_change_nothing(case: Case) -> None:
    model, cache, token_ids = case.model, round_cache(case.model), case.token_ids
    model.prefill(token_ids[: ROUND - 20], cache)
    wrong = [(token_id + 1) % 320 for token_id in token_ids]
    at = ROUND - 20
    while at < ROUND + 60:
        # Some drafts are right, and then the first wrong one is taken back.
        drafted = token_ids[at : at + 5] + wrong[at + 5 : at + 16]
        assert np.array_equal(
            np.asarray(model.decode(drafted, cache))[:5], case.expected[at : at + 5]
        )
        at += 5
        cache.rollback(at)
    # As far as a cache goes back by itself, and on again.
    model.prefill(token_ids[at:-16], cache)
    back = next(n for n in range(1, N_TOKENS) if cache.reaches(n))
    assert back < N_TOKENS - 16 - 256
    cache.rollback(back)
    model.prefill(token_ids[back : back + 7], cache)
    rows = model.decode(token_ids[back + 7 : back + 20], cache)
    assert np.array_equal(rows, case.expected[back + 7 : back + 20])


def test_branches_across_the_seam_are_what_they_are_alone(case: Case) -> None:
    """Long ones and short ones, together and in turn."""
    model, token_ids, fork = case.model, case.token_ids, ROUND - 30
    other = prompt(40, seed=2)
    alone = all_logits(model, token_ids[:fork] + other, whole_cache(model))[fork:]

    def check(branches: Branches) -> None:
        for i in range(300):
            rows = [BranchRow(0, token_ids[fork + i], fork + i)]
            late = i - 260
            if late >= 0:
                rows.append(BranchRow(1, other[late], fork + late))
            found = branches.decode(rows)
            assert np.array_equal(found[0], case.expected[fork + i]), i
            assert late < 0 or np.array_equal(found[1], alone[late]), late

    cache = round_cache(model)
    model.prefill(token_ids[:fork], cache)
    check(model.branches(cache, n_positions=300))
    assert cache.token_ids == token_ids[:fork]
    # The cache is as it was.
    rows = model.decode(token_ids[fork : fork + 16], cache)
    assert np.array_equal(rows, case.expected[fork : fork + 16])
    cache.rollback(fork)
    check(PassesInTurn(cache, lambda token_id: model.decode([token_id], cache)))
    rows = model.decode(token_ids[fork : fork + 16], cache)
    assert np.array_equal(rows, case.expected[fork : fork + 16])


def test_prompts_are_restored_from_copies(case: Case) -> None:
    """At any cut, also where the cache itself has lost the window, and after others."""
    model, token_ids, cache = case.model, case.token_ids, round_cache(case.model)
    prefix = PrefixCache(cache, byte_budget=2**26)
    model.prefill(token_ids, cache)
    for cut in (700, 300, 64, 5, 789):
        reuse = prefix.prepare([*token_ids[:cut], 0, 1])
        assert reuse.n_reused in (cut, cut + 1), reuse  # the next one may be right by chance
        rows = model.decode([token_ids[cut]], cache) if reuse.n_reused == cut else None
        assert rows is None or np.array_equal(rows[0], case.expected[cut]), cut
        prefix.prepare(prompt(10, seed=9))
        model.prefill(prompt(10, seed=9), cache)
        reuse = prefix.prepare(token_ids)
        assert (reuse.n_reused, reuse.source) == (N_TOKENS, "memory")


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16", "kv_cache": "bfloat16"},
        {"quantize": "8bit", "kv_cache": "8bit"},
        {"kv_cache": "4bit"},
    ],
    ids=["bfloat16", "8bit", "4bit"],
)
def test_narrow_keys_and_values_go_round_too(tmp_path: Path, options: dict[str, Any]) -> None:
    save_model(tmp_path, MODELS["gemma3"], max_position_embeddings=1024)
    model = loaded(
        tmp_path, ops=open_ops(device="cpu", **options), max_seq_len=MAX_SEQ_LEN, chunk_size=100
    )
    token_ids, cache = prompt(N_TOKENS), round_cache(model)
    expected = all_logits(model, token_ids, whole_cache(model))
    assert np.array_equal(all_logits(model, token_ids, cache), expected)
    prefix = PrefixCache(cache, byte_budget=2**26)
    prefix.prepare([])
    model.prefill(token_ids, cache)
    assert prefix.prepare(token_ids[:300]).n_reused == 300
    assert np.array_equal(model.decode(token_ids[300:310], cache), expected[300:310])


def test_an_aborted_prompt_goes_on(tmp_path: Path) -> None:
    save_model(tmp_path, "mistral-window", max_position_embeddings=1024)
    model = loaded(tmp_path, max_seq_len=MAX_SEQ_LEN, chunk_size=100)
    token_ids, cache, abort = prompt(N_TOKENS), round_cache(model), AbortFlag()

    def stop_late(done: int, total: int) -> None:
        if done > ROUND + 100:
            abort.set()

    assert not model.prefill(token_ids, cache, abort=abort, on_progress=stop_late)
    n = cache.length
    assert ROUND + 100 < n < N_TOKENS
    found = all_logits(model, token_ids[n:], cache)
    assert np.array_equal(found, all_logits(model, token_ids, whole_cache(model))[n:])


def test_the_memory_is_that_of_the_window(tmp_path: Path) -> None:
    save_model(tmp_path, MODELS["gemma3"], max_position_embeddings=1024)
    model = loaded(tmp_path, max_seq_len=MAX_SEQ_LEN)
    config, cache = model.config, round_cache(model)
    windows = [layer.attention.window for layer in config.layers]
    assert set(windows) == {0, 12} or 0 in windows
    for window, memory in zip(windows, cache.layers, strict=True):
        assert isinstance(memory, tuple)
        keys, values = memory
        assert isinstance(keys, PanelHeadRows)
        assert isinstance(values, PanelHeadRows)
        n = ROUND if window else MAX_SEQ_LEN
        assert keys.panels.shape[1] == values.panels.shape[1] == -(-n // 16) * 16
    per_row = kv_bytes(config, "float32", 1, None) // config.n_layers
    n_windows = sum(1 for window in windows if window)
    expected = (n_windows * ROUND + (config.n_layers - n_windows) * MAX_SEQ_LEN) * per_row
    assert kv_bytes(config, "float32", MAX_SEQ_LEN, PASS_ROWS) == expected
    # A longer context costs what layers without a window need.
    description = describe(tmp_path)
    assert description.kv_bytes(900, "float32") == 900 * config.n_layers * per_row
    in_passes_of_512 = n_windows * 1024 + (config.n_layers - n_windows) * 5000
    assert description.kv_bytes(5000, "float32") == in_passes_of_512 * per_row

    def bytes_of(n: int) -> int:
        return kv_bytes(config, "float32", n, PASS_ROWS)

    available = int(bytes_of(700) / 0.9) + 1
    assert context_length(config, None, bytes_of=bytes_of, available=available) == 700
    # A context that is no longer than that is held as it is.
    assert kv_shapes(config, ROUND, PASS_ROWS) == kv_shapes(config, ROUND, None)


def test_torch_holds_everything(tmp_path: Path) -> None:
    save_model(tmp_path, "mistral-window", max_position_embeddings=1024)
    model = loaded(tmp_path, ops=TorchOps("cpu", "float32"), max_seq_len=MAX_SEQ_LEN)
    cache = KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN, pass_rows=PASS_ROWS)
    assert not cache.goes_round
    assert {n for _, n, _ in cache.shapes} == {MAX_SEQ_LEN}
    model.prefill(prompt(600), cache)
    assert cache.reaches(20)
