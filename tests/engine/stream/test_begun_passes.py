"""Passes that the other threads begin while a token is told: the stream is the same as without."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, SamplingSettings, StreamingGenerator, StreamOptions
from engine.cache.kv import KVCache
from engine.device.cpu.program import CpuProgram
from engine.device.step import StepState
from engine.model.model import Model
from engine.native import _cpu
from tests.support.any_stream import stream_parts
from tests.support.family_models import FAMILY_MODELS
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import save_model

GREEDY = SamplingSettings(temperature=0.0)
SAMPLED = SamplingSettings(temperature=1.2, seed=11)
PROMPT = [7 * i % 200 + 5 for i in range(40)]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = _cpu.threads()
    yield
    _cpu.set_threads(before)


@pytest.fixture
def engine(tiny_model: Path) -> Engine:
    return Engine.load(tiny_model, device="cpu", dtype="float32", n_threads=2)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of the passes that were begun."""
    positions: list[int] = []
    begin = CpuProgram.begin

    def noted(self: CpuProgram, state: StepState) -> None:
        positions.append(state.pos)
        begin(self, state)

    monkeypatch.setattr(CpuProgram, "begin", noted)
    return positions


def told(generator: StreamingGenerator, settings: SamplingSettings, **options: Any) -> list[Any]:
    options = {"max_new_tokens": 40, "ignore_eos": True, "return_top_tokens": 3, **options}
    generator.begin_stream_ex(PROMPT, settings, **options)
    return [(each.token_id, each.logprob, each.top) for each in records_of(run(generator))]


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"speculate": False},
        {"banned_strings": ["e", "th"]},
        {"stop": ["zq"]},
        {"max_new_tokens": 1},
        {"prediction": [9, 9, 9, 9]},
    ],
    ids=str,
)
def test_a_stream_is_the_same_as_without(
    engine: Engine,
    begun: list[int],
    monkeypatch: pytest.MonkeyPatch,
    settings: SamplingSettings,
    options: dict[str, Any],
) -> None:
    with_begun = [told(engine.generator, settings, **options) for _ in range(3)]
    assert bool(begun) == (options != {"max_new_tokens": 1})
    monkeypatch.setattr(Model, "begin", lambda self, token_id, cache: None)
    assert all(each == told(engine.generator, settings, **options) for each in with_begun)


def test_what_comes_between_two_steps_takes_nothing_from_it(engine: Engine) -> None:
    """Peeks, given tokens and ways back use the caches while a pass has begun."""

    def told_with_detours() -> list[Any]:
        generator = engine.generator
        found: list[Any] = []
        options = StreamOptions(max_new_tokens=80, ignore_eos=True)
        stream = generator.begin(PROMPT, GREEDY, options)
        for number in range(24):
            found += [(each.token_id, each.logprob) for each in stream.step().tokens]
            if number % 5 == 1:
                found += [each.tokens for each in stream.peek(top=2, n_tokens=3)]
            if number % 5 == 2:
                stream.inject([9, 10])
            if number % 5 == 4:
                stream.rewind(2)
        stream.end()
        return found

    first = told_with_detours()
    assert told_with_detours() == first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "begin", lambda self, token_id, cache: None)
        assert told_with_detours() == first


@pytest.mark.parametrize(
    "options",
    [
        {"return_logits": True},
        {"on_token": lambda sampled: None},
        {"negative_ids": [3, 4], "cfg_scale": 1.5},
    ],
    ids=["logits", "hook", "guidance"],
)
def test_nothing_is_begun_if_the_row_is_still_read_or_another_pass_comes(
    engine: Engine, begun: list[int], options: dict[str, Any]
) -> None:
    told(engine.generator, GREEDY, **options)
    assert begun == []


def test_nothing_is_begun_while_others_read_what_passes_tell(
    engine: Engine, begun: list[int], guessed: list[int]
) -> None:
    engine.model.on_hidden = lambda cache, rows: None
    told(engine.generator, GREEDY)
    assert begun == guessed == []


@pytest.mark.parametrize("family", ["lfm2", "falcon_h1"])
def test_states_are_not_touched_before_their_pass(
    tmp_path: Path, begun: list[int], guessed: list[int], family: str
) -> None:
    parts = stream_parts(tmp_path, FAMILY_MODELS[family])
    told(parts.plain(), GREEDY, max_new_tokens=10)
    assert begun == guessed == []


def test_a_window_loses_nothing_that_is_still_seen(tmp_path: Path, begun: list[int]) -> None:
    """Caches that go round: the pass that has begun writes over the oldest position."""
    save_model(tmp_path / "model", "mistral-window", max_position_embeddings=4096)
    engine = Engine.load(
        tmp_path / "model", device="cpu", dtype="float32", n_threads=2, max_seq_len=3000
    )
    prompt = [n * n % 200 + 5 for n in range(1010)]

    def answer() -> list[Any]:
        engine.generator.begin_stream_ex(
            prompt, SAMPLED, max_new_tokens=60, ignore_eos=True, reuse_prefix=False
        )
        return [(each.token_id, each.logprob) for each in records_of(run(engine.generator))]

    with_begun = answer()
    assert max(begun) > 1024, "as many positions as the caches hold"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "begin", lambda self, token_id, cache: None)
        assert answer() == with_begun


def test_other_keys_and_values_are_not_those_that_it_read(engine: Engine) -> None:
    """The same token at the same position, but after another text."""
    model, other = engine.model, PROMPT[::-1][:32]
    cache = KVCache(model.config, model.ops, max_seq_len=128)
    model.prefill(other, cache)
    copied = np.empty(cache.positions.n_bytes(32), np.uint8)
    cache.positions.copy_out(0, 32, copied)
    expected = np.asarray(model.decode([7], cache)).copy()
    for _ in range(10):
        cache.clear()
        model.prefill(PROMPT[:32], cache)
        model.begin(7, cache)
        time.sleep(0.01)  # the other thread has most likely finished it
        cache.clear()
        cache.append_copied(other, copied, n_copied=32)
        assert np.array_equal(np.asarray(model.decode([7], cache)), expected)


@pytest.fixture
def guessed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions after which the likeliest token was guessed."""
    positions: list[int] = []
    run_program = CpuProgram.run

    def noted(self: CpuProgram, state: StepState, *, guess_from: Any = None) -> bool:
        if guess_from is not None:
            positions.append(state.pos)
        return run_program(self, state, guess_from=guess_from)

    monkeypatch.setattr(CpuProgram, "run", noted)
    return positions


UNLIKELY = SamplingSettings(temperature=0.0, repetition_penalty=1.9, frequency_penalty=1.0)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (GREEDY, {}),
        (UNLIKELY, {}),
        (UNLIKELY, {"speculate": False}),
        (GREEDY, {"banned_strings": ["e", "th"]}),
        (GREEDY, {"prediction": [9, 9, 9, 9]}),
    ],
    ids=["greedy", "often wrong", "alone", "taken back", "drafts"],
)
def test_a_stream_is_the_same_as_without_guesses(
    engine: Engine,
    guessed: list[int],
    monkeypatch: pytest.MonkeyPatch,
    settings: SamplingSettings,
    options: dict[str, Any],
) -> None:
    with_guesses = [told(engine.generator, settings, **options) for _ in range(3)]
    assert guessed
    decode = Model.decode
    monkeypatch.setattr(
        Model, "decode", lambda self, ids, cache, guesses_next=False: decode(self, ids, cache)
    )
    n_guessed = len(guessed)
    assert all(each == told(engine.generator, settings, **options) for each in with_guesses)
    assert len(guessed) == n_guessed


@pytest.mark.parametrize(
    ("settings", "options"),
    [(SAMPLED, {}), (GREEDY, {"return_logits": True}), (GREEDY, {"max_new_tokens": 1})],
    ids=["sampled", "logits", "one token"],
)
def test_nothing_is_guessed_without_prospects(
    engine: Engine, guessed: list[int], settings: SamplingSettings, options: dict[str, Any]
) -> None:
    told(engine.generator, settings, **options)
    assert guessed == []


def test_a_guess_is_the_likeliest_token_and_leaves_the_row(engine: Engine) -> None:
    """Its keys and values come into the cache before anybody asked for them."""
    model = engine.model
    cache = KVCache(model.config, model.ops, max_seq_len=128)
    model.prefill(PROMPT[:32], cache)

    def copied() -> Any:
        copy = np.empty(cache.positions.n_bytes(16), np.uint8)
        cache.positions.copy_out(32, 48, copy)
        return copy

    for token_id in range(5, 15):
        likeliest = int(np.asarray(model.decode([token_id], cache)).argmax())
        model.decode([likeliest], cache)
        expected = copied()
        cache.rollback(32)
        model.decode([token_id + 1], cache)
        model.decode([(likeliest + 1) % model.config.vocab_size], cache)
        cache.rollback(32)

        row = np.asarray(model.decode([token_id], cache, guesses_next=True))
        before = row.copy()
        deadline = time.monotonic() + 60
        while not np.array_equal(copied(), expected):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert np.array_equal(row, before)
        cache.rollback(32)


def test_a_full_cache_begins_nothing(engine: Engine) -> None:
    cache = KVCache(engine.config, engine.model.ops, max_seq_len=16)
    engine.model.prefill(PROMPT[:15], cache)
    row = np.asarray(engine.model.decode([7], cache, guesses_next=True))
    before = row.copy()
    engine.model.begin(7, cache)
    time.sleep(0.01)
    assert np.array_equal(row, before)
    with pytest.raises(ValueError, match="do not fit"):
        engine.model.decode([7], cache)
