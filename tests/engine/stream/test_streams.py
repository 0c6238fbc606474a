"""What one call yields, what a hook may do, and that a stream's failure does not reach the next."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import AbortFlag, Engine, InvalidInputError, SamplingSettings, StreamingGenerator
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.model.model import Model
from engine.sampling.guidance import guided
from engine.text.tokenizer import Tokenizer
from tests.support.scripted_model import (
    END,
    GREEDY,
    PieceVocabulary,
    ScriptedModel,
    assert_nothing_lost,
    records_of,
    run,
    text_of,
)

SAMPLED = SamplingSettings(temperature=1.0, top_p=0.95, repetition_penalty=1.1, seed=3)
PROMPT = [5, 6, 7, 8, 9, 10]


def ids_of(generator: StreamingGenerator, **options: Any) -> list[int]:
    options = {"max_new_tokens": 16, "ignore_eos": True, **options}
    generator.begin_stream_ex(options.pop("prompt", PROMPT), SAMPLED, **options)
    return [record.token_id for record in records_of(run(generator))]


def test_the_keys_are_always_the_same_and_read_as_a_mapping() -> None:
    generator = ScriptedModel([*b"ab", END]).generator()
    generator.begin_stream_ex([1], GREEDY)
    results = run(generator)
    assert len({tuple(result) for result in results}) == 1
    for result in results:
        assert all(result[key] is getattr(result, key) or key for key in result)
    with pytest.raises(KeyError):
        results[0]["no such key"]


def test_a_hook_sees_every_token_and_may_replace_it() -> None:
    generator = ScriptedModel([*b"abc", END]).generator()
    seen = []

    def swap(sampled: Any) -> int | None:
        seen.append(sampled.token_id)
        return ord("X") if sampled.token_id == ord("b") else None

    generator.begin_stream_ex([1], GREEDY, on_token=swap, return_logits=True)
    results = run(generator)
    assert text_of(results) == "aXc"
    assert seen == [*b"abc", END]
    record = records_of(results)[1]
    assert (record.origin, record.p_sampled) == ("hook", 1.0)
    logits = np.concatenate([r.logits for r in results if r.logits is not None])[1].astype(float)
    raw = np.exp(logits - logits.max())
    assert record.p_raw == pytest.approx(raw[ord("X")] / raw.sum(), rel=1e-6)
    assert record.rank == int((logits > logits[ord("X")]).sum())


def test_a_hook_cannot_leave_the_vocabulary() -> None:
    generator = ScriptedModel([*b"abc", END]).generator()
    generator.begin_stream_ex([1], GREEDY, on_token=lambda sampled: 999)
    with pytest.raises(InvalidInputError, match="token 999"):
        generator.stream_ex()
    generator.begin_stream_ex([1], GREEDY)
    assert text_of(run(generator)) == "abc"


def test_tokens_banned_in_one_call_are_free_in_the_next() -> None:
    generator = ScriptedModel([[*b"ab"], [*b"ab"], END]).generator()
    generator.begin_stream_ex([1], GREEDY)
    bans = [ord("a")]
    first = generator.stream_ex(bans)
    assert first.chunk == "b"
    assert bans == [ord("a")], "the caller's list is the caller's"
    generator.begin_stream_ex([1], GREEDY, min_new_tokens=2, banned_strings=["b"])
    while not generator.stream_ex(bans).eos:
        assert bans == [ord("a")], "also when strings and ends are banned as well"
    generator.begin_stream_ex([1], GREEDY)
    assert generator.stream_ex(bans).chunk == "b"
    assert generator.stream_ex().chunk == "a"
    with pytest.raises(InvalidInputError, match="ban_tokens"):
        generator.stream_ex([258])


def test_no_stop_token_before_the_minimum() -> None:
    generator = ScriptedModel([[*b"a"], [END, ord("b")], [END, ord("c")], END]).generator()
    generator.begin_stream_ex([1], GREEDY, min_new_tokens=3)
    assert text_of(run(generator)) == "abc"
    with pytest.raises(InvalidInputError, match="min_new_tokens must be at most max_new_tokens, 2"):
        generator.begin_stream_ex([1], GREEDY, min_new_tokens=3, max_new_tokens=2)


def test_abort_at_every_step_leaves_a_generator_as_good_as_new(tiny_engine: Engine) -> None:
    generator = tiny_engine.generator
    fresh = ids_of(generator)
    other = [11, 12, 13]
    for n_steps in range(8):
        abort = AbortFlag()
        generator.begin_stream_ex(other, SAMPLED, abort=abort, ignore_eos=True)
        for _ in range(n_steps):
            generator.stream_ex()
        abort.set()
        assert [r.eos_reason for r in run(generator)] == ["aborted"]
        assert ids_of(generator) == fresh


def test_a_stream_that_is_left_half_way_does_not_matter(tiny_engine: Engine) -> None:
    generator = tiny_engine.generator
    fresh = ids_of(generator)
    generator.begin_stream_ex([1, 2, 3], SAMPLED, max_tokens_per_call=1)
    generator.stream_ex()
    assert ids_of(generator) == fresh


STAGES: dict[str, tuple[type, str]] = {
    "prefix": (PrefixCache, "prepare"),
    "prefill": (Model, "prefill"),
    "pass": (Model, "decode"),
    "vocabulary": (Tokenizer, "token_bytes"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("n_before", [0, 1, 3])
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_no_failure_reaches_the_next_stream(
    tiny_engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    n_before: int,
    error: type[BaseException],
) -> None:
    generator = tiny_engine.generator
    fresh = ids_of(generator)
    target, name = STAGES[stage]
    plain = getattr(target, name)
    n_calls = 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls > n_before:
            raise error("planted")
        return plain(*args, **kwargs)

    monkeypatch.setattr(target, name, failing)
    prompt = [9, 3, 4]
    failed = False
    for _ in range(4):  # prefix and prefill are called once per stream
        try:
            ids_of(generator, prompt=prompt, banned_strings=["zzz"])
        except error:
            failed = True
    assert failed
    monkeypatch.setattr(target, name, plain)
    assert ids_of(generator) == fresh


@pytest.mark.parametrize("n_before", [0, 1, 5])
def test_a_failing_hook_ends_its_own_stream_only(tiny_engine: Engine, n_before: int) -> None:
    generator = tiny_engine.generator
    fresh = ids_of(generator)
    calls = iter(range(100))

    def hook(sampled: Any) -> None:
        if next(calls) == n_before:
            raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        ids_of(generator, on_token=hook)
    with pytest.raises(InvalidInputError, match="no stream is running"):
        generator.stream_ex()
    assert ids_of(generator) == fresh


def test_tokens_per_call_do_not_change_the_text(tiny_engine: Engine) -> None:
    generator = tiny_engine.generator
    assert ids_of(generator) == ids_of(generator, max_tokens_per_call=1)
    with pytest.raises(InvalidInputError, match="max_tokens_per_call must be 1 or more, not 0"):
        ids_of(generator, max_tokens_per_call=0)


@pytest.mark.parametrize("cfg_scale", [1.0, 2.0])
def test_returned_logits_are_the_models_own(tiny_engine: Engine, cfg_scale: float) -> None:
    """Whatever the sampler does to them, and one row per token under guidance too."""
    adjusted = SamplingSettings(
        temperature=0.5, repetition_penalty=1.8, presence_penalty=1.0, dry_multiplier=2.0,
        logit_bias={20: 9.0, 21: -9.0}, banned_tokens=(30, 31), seed=3,
    )  # fmt: skip
    generator, negative = tiny_engine.generator, [11, 12, 13]
    generator.begin_stream_ex(
        PROMPT,
        adjusted,
        max_new_tokens=12,
        ignore_eos=True,
        return_logits=True,
        negative_ids=negative,
        cfg_scale=cfg_scale,
        banned_strings=["e", "a"],
    )
    results = run(generator)
    logits = np.concatenate([r.logits for r in results if r.logits is not None])
    token_ids = [r.token_id for r in [*records_of(results), *results[-1].dropped]]

    def rows_behind(prompt: list[int]) -> Any:
        model = tiny_engine.model
        cache = KVCache(model.config, model.ops, max_seq_len=64)
        model.prefill(prompt[:-1], cache)
        ids = [prompt[-1], *token_ids[:-1]]
        return np.concatenate([model.decode([id_], cache).copy() for id_ in ids])

    rows = rows_behind(PROMPT)
    if cfg_scale != 1.0:
        rows = np.concatenate(
            [
                guided(row[None], other[None], cfg_scale)
                for row, other in zip(rows, rows_behind(negative), strict=True)
            ]
        )
    assert np.array_equal(logits, rows)


def test_records_say_how_sure_the_model_was(tiny_engine: Engine) -> None:
    generator = tiny_engine.generator
    generator.begin_stream_ex(
        PROMPT, SAMPLED, max_new_tokens=12, ignore_eos=True, return_logits=True
    )
    results = run(generator)
    assert_nothing_lost(results)
    logits = np.concatenate([r.logits for r in results if r.logits is not None]).astype(np.float64)
    records = [*records_of(results), *results[-1].dropped]
    assert len(records) == len(logits) == 12
    for record, row in zip(records, logits, strict=True):
        p = np.exp(row - row.max())
        p /= p.sum()
        descending = np.sort(p)[::-1]
        assert record.rank == int((row > row[record.token_id]).sum())
        assert record.entropy == pytest.approx(-(p * np.log(p)).sum(), rel=1e-5)
        assert record.margin == pytest.approx(descending[0] - descending[1], abs=1e-6)
        assert 0.9 < record.kept_mass <= 1.0
        assert (record.origin, record.proposed) == ("model", None)


def test_what_was_computed_outlives_the_process(tiny_model: Path, tmp_path: Path) -> None:
    prompt = [*range(5, 105)]

    def load() -> Engine:
        return Engine.load(
            tiny_model,
            device="cpu",
            dtype="float32",
            prefix_bytes=2**20,
            prefix_directory=tmp_path / "prefixes",
        )

    first = load()
    expected = ids_of(first.generator, prompt=prompt)
    first.generator.close()
    second = load()
    prefill = second.generator.begin_stream_ex(prompt, SAMPLED)
    assert (prefill.reuse.source, prefill.n_cached) == ("disk", 99)
    assert ids_of(second.generator, prompt=prompt) == expected


@pytest.mark.parametrize("settings", [GREEDY, SamplingSettings(temperature=5.0, seed=1)])
def test_rows_that_no_token_uses_are_never_drawn(settings: SamplingSettings) -> None:
    pieces = [bytes([letter]) for letter in b"abc"]
    model = ScriptedModel([[255, 200, 3, 0], [256], [254, 1]])
    vocabulary = PieceVocabulary(pieces, n_special=0)
    generator = model.generator(vocabulary)
    generator.begin_stream_ex([1], settings, max_new_tokens=3, stop_token_ids=[])
    assert all(record.token_id < 3 for record in records_of(run(generator)))
