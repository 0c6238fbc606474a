"""The last token of a prompt goes along in the pass over the others: nothing that a model or a
stream says depends on it.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, SamplingSettings, StreamOptions
from engine.abort import AbortFlag
from engine.cache.kv import KVCache
from engine.device.cpu.ops import CpuOps
from engine.model.branches import BranchRow
from engine.model.model import Model
from engine.native.cpu import kernels
from engine.sampling.logits import Logits
from tests.engine.model.test_model_parity import empty_cache, loaded, prompt
from tests.support.family_models import FAMILY_MODELS
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import FAMILIES, save_model

MODELS = {**FAMILIES, **FAMILY_MODELS}
CHUNK = 24
FOLLOWING = (9, 200, 31)
IDS = prompt(20)
GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(temperature=1.2, seed=11)
PROMPT = [7 * i % 200 + 5 for i in range(40)]
PREFILL = Model.prefill


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = kernels.threads()
    yield
    kernels.set_threads(before)


def logits(model: Model, ids: list[int], cache: KVCache, *, goes_along: bool) -> Logits:
    """After the last of `ids`, and after each of the tokens that follow."""
    model.prefill(ids[:-1], cache, next_id=ids[-1] if goes_along else None)
    assert (cache.ahead == ids[-1]) == goes_along
    rows = [np.array(model.decode([each], cache)) for each in (ids[-1], *FOLLOWING)]
    assert cache.token_ids == [*ids, *FOLLOWING]
    return np.concatenate(rows)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_the_same_for_every_family(tmp_path: Path, name: str) -> None:
    save_model(tmp_path, MODELS[name])
    model = loaded(tmp_path, chunk_size=CHUNK)
    if model.config.state_shapes:
        pytest.skip("its states could not be put back")
    for n in (2, 9, 2 * CHUNK - 5):
        ids = prompt(n)
        expected = logits(model, ids, empty_cache(model), goes_along=False)
        found = logits(model, ids, empty_cache(model), goes_along=True)
        assert np.array_equal(found, expected), n


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kv_cache", ["float32", "bfloat16", "8bit", "4bit"])
@pytest.mark.parametrize("format_", ["float32", "bfloat16", "8bit", "6bit", "5bit", "4bit"])
def test_logits_are_the_same_in_every_format(
    tiny_model: Path, format_: str, kv_cache: str, n_threads: int
) -> None:
    ops = CpuOps(format_, kv_cache=kv_cache, n_threads=n_threads)
    model = loaded(tiny_model, ops=ops, chunk_size=CHUNK)
    ids = prompt(CHUNK + 7)
    expected = logits(model, ids, empty_cache(model), goes_along=False)
    assert np.array_equal(logits(model, ids, empty_cache(model), goes_along=True), expected)


@pytest.fixture
def model(tiny_model: Path) -> Model:
    return loaded(tiny_model, ops=CpuOps("float32", n_threads=2), chunk_size=CHUNK)


@pytest.mark.parametrize("n", [1, 2, CHUNK, CHUNK + 1, CHUNK + 2, 2 * CHUNK, 2 * CHUNK + 1])
def test_a_pass_that_is_full_takes_nobody_along(model: Model, n: int) -> None:
    ids, cache = prompt(n), empty_cache(model)
    model.prefill(ids[:-1], cache, next_id=ids[-1])
    has_room = (n - 1) % CHUNK != 0
    assert (cache.ahead == ids[-1]) == has_room
    found = np.array(model.decode(ids[-1:], cache))
    other = empty_cache(model)
    model.prefill(ids[:-1], other)
    assert np.array_equal(found, model.decode(ids[-1:], other))


def _a_draft(model: Model, cache: KVCache) -> None:
    model.decode([7, 8, 9], cache)
    cache.rollback(cache.length - 3)


def _a_way_back(_: Model, cache: KVCache) -> None:
    cache.rollback(cache.length - 3)


def _another_prompt(model: Model, _: KVCache) -> None:
    model.prefill(prompt(12, seed=5), empty_cache(model))


def _the_same_token_after_another_prompt(model: Model, _: KVCache) -> KVCache:
    other = empty_cache(model)
    model.prefill(prompt(12, seed=5), other, next_id=IDS[-1])
    return other


def _other_keys(model: Model, cache: KVCache) -> None:
    """Of the same length, so that the token comes to the same place."""
    n = cache.length
    cache.clear()
    model.prefill(prompt(n, seed=6), cache)


def _branches(model: Model, cache: KVCache) -> None:
    branches = model.branches(cache, n_positions=4)
    branches.decode([BranchRow(branch, 9 + branch, cache.length) for branch in range(3)])


def _another_pass_begins(model: Model, cache: KVCache) -> None:
    model.begin(9, cache)
    time.sleep(0.01)  # the other thread has most likely finished it


def _a_profile(model: Model, _: KVCache) -> None:
    model.profile([9], empty_cache(model))


def _weights_come_back(model: Model, _: KVCache) -> None:
    weights = model.weights
    model.drop_weights()
    model.take_weights(weights)
    model.prefill(prompt(12, seed=5), empty_cache(model))


@pytest.mark.parametrize(
    "between",
    [
        _a_draft,
        _a_way_back,
        _another_prompt,
        _the_same_token_after_another_prompt,
        _other_keys,
        _branches,
        _another_pass_begins,
        _a_profile,
        _weights_come_back,
    ],
)
def test_what_comes_between_takes_nothing_from_it(model: Model, between: Any) -> None:
    def after(*, goes_along: bool) -> Logits:
        cache = empty_cache(model)
        model.prefill(IDS[:-1], cache, next_id=IDS[-1] if goes_along else None)
        kept_alive = between(model, cache)
        rows = [np.array(model.decode([each], cache)) for each in (IDS[-1], *FOLLOWING)]
        del kept_alive
        return np.concatenate(rows)

    assert np.array_equal(after(goes_along=True), after(goes_along=False))


@pytest.mark.parametrize("is_cleared", [True, False])
def test_copies_that_come_in_between(model: Model, is_cleared: bool) -> None:
    """No pass has run, and the cache may be as long as it was; but it holds another text."""
    other, rest = prompt(16, seed=6), prompt(16, seed=7)
    cache = empty_cache(model)
    copies = []
    for ids in ([*other, *rest], other):
        cache.clear()
        model.prefill(ids, cache)
        copy = np.empty(cache.positions.n_bytes(16), np.uint8)
        cache.positions.copy_out(len(ids) - 16, len(ids), copy)
        copies.append(copy)
    behind, instead = copies

    def after(*, goes_along: bool) -> Logits:
        cache.clear()
        model.prefill(IDS[:16], cache, next_id=7 if goes_along else None)
        if is_cleared:
            cache.clear()
            cache.append_copied(other, instead, n_copied=16)
        else:
            cache.append_copied(rest, behind, n_copied=16)
        return np.array(model.decode([7], cache))

    assert np.array_equal(after(goes_along=True), after(goes_along=False))


def test_another_token_than_the_one_that_was_announced(model: Model) -> None:
    cache, other = empty_cache(model), empty_cache(model)
    model.prefill(IDS, other)
    expected = [np.array(model.decode([each], other)) for each in (8, 7)]
    model.prefill(IDS, cache, next_id=7)
    assert cache.ahead == 7
    for token_id, row in zip((8, 7), expected, strict=True):
        assert np.array_equal(model.decode([token_id], cache), row)


def test_an_id_that_does_not_exist_is_refused(model: Model) -> None:
    cache = empty_cache(model)
    with pytest.raises(ValueError, match="token ids must lie in"):
        model.prefill(prompt(5), cache, next_id=model.config.vocab_size)
    assert cache.length == 0


def test_a_prompt_that_is_ended_keeps_its_whole_chunks(model: Model) -> None:
    ids, cache, flag = prompt(CHUNK + 9), empty_cache(model), AbortFlag()
    done = model.prefill(
        ids[:-1], cache, abort=flag, on_progress=lambda *_: flag.set(), next_id=ids[-1]
    )
    assert not done
    assert cache.token_ids == ids[:CHUNK]
    assert cache.ahead is None


@pytest.mark.parametrize("name", ["lfm2", "falcon_h1"])
def test_states_go_over_no_token_before_it_comes(tmp_path: Path, name: str) -> None:
    save_model(tmp_path, MODELS[name])
    model = loaded(tmp_path, chunk_size=CHUNK)
    cache = empty_cache(model)
    model.prefill(prompt(9), cache, next_id=7)
    assert cache.ahead is None


@pytest.mark.parametrize("of", ["ends", "layers"])
def test_whoever_is_told_of_each_row_is_told_in_order(model: Model, of: str) -> None:
    if of == "ends":
        model.keep_hidden()
    else:
        model.keep_residuals([1])

    def told(*, goes_along: bool) -> list[Logits]:
        cache, rows = empty_cache(model), list[Logits]()
        model.on_hidden = None
        model.warm_up(cache)
        model.on_hidden = lambda _, hidden: rows.append(np.array(hidden))
        model.prefill(IDS[:-1], cache, next_id=IDS[-1] if goes_along else None)
        model.decode(IDS[-1:], cache)
        return rows

    expected, found = told(goes_along=False), told(goes_along=True)
    assert [len(rows) for rows in found] == [len(IDS) - 1, 1]
    assert all(map(np.array_equal, found, expected))


def test_a_cache_that_goes_round_loses_nothing_that_is_seen(tmp_path: Path) -> None:
    save_model(tmp_path, "mistral-window", max_position_embeddings=1024)
    model = loaded(tmp_path, max_seq_len=900, chunk_size=100)
    ids = prompt(790)

    def after(*, goes_along: bool) -> Logits:
        cache = KVCache(model.config, model.ops, max_seq_len=900, pass_rows=48)
        assert cache.goes_round
        return logits(model, ids, cache, goes_along=goes_along)

    assert np.array_equal(after(goes_along=True), after(goes_along=False))


@pytest.fixture
def engine(tiny_model: Path) -> Engine:
    return Engine.load(tiny_model, device="cpu", dtype="float32", n_threads=2)


def alone(self: Model, token_ids: Sequence[int], cache: KVCache, **options: Any) -> bool:
    """Instead of `Model.prefill`."""
    return PREFILL(self, token_ids, cache, **{**options, "next_id": None})


def told(engine: Engine, settings: SamplingSettings, **options: Any) -> list[Any]:
    """Streams over prompts of which nothing, something, and all but the end is in the cache."""
    found: list[Any] = []
    options = {"max_new_tokens": 24, "ignore_eos": True, "return_top_tokens": 3, **options}
    for text in (PROMPT[::-1], PROMPT, [*PROMPT[:20], *PROMPT[5:17]], [*PROMPT[:20], 5, 6, 7]):
        engine.generator.begin_stream_ex(text, settings, **options)
        found += [
            (each.token_id, each.logprob, each.top) for each in records_of(run(engine.generator))
        ]
    return found


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"speculate": False},
        {"prediction": [9, 9, 9, 9]},
        {"banned_strings": ["e", "th"]},
        {"negative_ids": [3, 4], "cfg_scale": 1.5},
        {"return_prompt_tokens": 2},
        {"token_healing": True},
        {"reuse_prefix": False},
        {"return_logits": True},
        {"max_new_tokens": 1},
    ],
    ids=str,
)
def test_a_stream_is_the_same_as_without(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    settings: SamplingSettings,
    options: dict[str, Any],
) -> None:
    with_it = told(engine, settings, **options)
    monkeypatch.setattr(Model, "prefill", alone)
    assert told(engine, settings, **options) == with_it


def test_detours_before_the_first_token(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks ahead, given tokens, and a way back from a snapshot."""

    def told_with_detours() -> list[Any]:
        found: list[Any] = []
        for detour in ("peek", "inject", "restore"):
            options = StreamOptions(max_new_tokens=12, ignore_eos=True)
            stream = engine.generator.begin(PROMPT, GREEDY, options)
            if detour == "peek":
                found += [each.tokens for each in stream.peek(top=2, n_tokens=3)]
            if detour == "inject":
                stream.inject([9, 10])
            if detour == "restore":
                stream = engine.generator.restore(stream.snapshot())
            found += [(each.token_id, each.logprob) for each in stream.step().tokens]
            found += [(each.token_id, each.logprob) for each in stream.step().tokens]
            stream.end()
        return found

    with_it = told_with_detours()
    monkeypatch.setattr(Model, "prefill", alone)
    assert told_with_detours() == with_it


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | None, int]]:
    """Of each pass for one row of logits or more: which token had gone along, and its rows."""
    seen: list[tuple[int | None, int]] = []
    decode = Model.decode

    def noted(self: Model, ids: Sequence[int], cache: KVCache, **options: Any) -> Any:
        seen.append((cache.ahead, len(ids)))
        return decode(self, ids, cache, **options)

    monkeypatch.setattr(Model, "decode", noted)
    return seen


def test_a_prompt_that_comes_again_before_its_first_token(
    engine: Engine, decoded: list[tuple[int | None, int]]
) -> None:
    """A client hung up and asks again: nothing is computed twice."""
    expected = told(engine, GREEDY)
    for text in (PROMPT[::-1], PROMPT, PROMPT):
        engine.generator.begin_stream_ex(text, GREEDY, return_top_tokens=3)
    assert engine.generator.n_cached_tokens == len(PROMPT) - 1
    first = engine.generator.stream_ex().tokens[0]
    assert decoded[-1] == (PROMPT[-1], 1)
    assert (first.token_id, first.logprob, first.top) == expected[24]


def test_scores_are_the_same_as_without(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def scores() -> list[Any]:
        scorer = engine.generator.begin_scoring(PROMPT, StreamOptions(reuse_prefix=False))
        return [scorer.score(each) for each in ([9], [9, 10, 11], [12])]

    with_it = scores()
    monkeypatch.setattr(Model, "prefill", alone)
    engine.generator.begin_scoring(PROMPT[::-1])
    assert scores() == with_it


def test_the_first_token_of_a_stream_needs_no_draft(
    tiny_model: Path, decoded: list[tuple[int | None, int]]
) -> None:
    """What is left of a pass costs less than a row of a draft."""
    engine = Engine.load(tiny_model, device="cpu", speculate="ngram", warm_up=False)
    engine.generator.begin_stream_ex(
        [5, 9, 9, 9, 9, 9, 9, 9, 9], GREEDY, prediction=[9] * 20, max_new_tokens=20
    )
    engine.generator.stream_ex()
    assert decoded == [(9, 1)]
    run(engine.generator)
    assert max(n_rows for _, n_rows in decoded) > 1


def test_scores_begin_with_what_is_left(
    engine: Engine, decoded: list[tuple[int | None, int]]
) -> None:
    scorer = engine.generator.begin_scoring(PROMPT)
    assert len(scorer.score([9, 10])) == 2
    assert decoded == [(PROMPT[-1], 1)]


def test_with_guidance_nothing_goes_along(
    engine: Engine, decoded: list[tuple[int | None, int]]
) -> None:
    """The pass over the negative prompt would overwrite it."""
    told(engine, GREEDY, negative_ids=[3, 4], cfg_scale=1.5)
    assert all(ahead is None for ahead, _ in decoded)
