"""A model whose numbers break: the stream ends with an error, and none of them is used again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from engine import AbortFlag, Engine, NumericsError, SamplingSettings
from engine.device.cpu.matrix import PanelMatrix
from tests.engine.draft.test_speculation import draft_model_of, load_drafting
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import save_model

SAMPLED = SamplingSettings(temperature=0.9, seed=3)
LONG = [*range(40, 200)]
SHORT = [60, 61, 62]
N_TOKENS = 24


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("numerics") / "model"
    save_model(path)
    save_model(path / "draft")
    return path


@pytest.fixture(scope="module", params=["float32", "bfloat16", "8bit"])
def engine(path: Path, request: pytest.FixtureRequest) -> Engine:
    """One for all tests: anything left behind would show in another."""
    return load_drafting(path, speculate="draft", prefix_bytes=2**26, kv_cache=request.param)


def begin(engine: Engine, prompt: list[int], **options: Any) -> None:
    engine.generator.begin_stream_ex(
        prompt, SAMPLED, max_new_tokens=N_TOKENS, ignore_eos=True, **options
    )


def ids_of(engine: Engine, prompt: list[int], **options: Any) -> list[int]:
    begin(engine, prompt, **options)
    return [record.token_id for record in records_of(run(engine.generator))]


@contextmanager
def poisoned(engine: Engine) -> Iterator[None]:
    """Inside the block, keys, values and logits are NaN."""
    panels = cast(PanelMatrix, engine.model.weights.layers[0].wqkv).panels
    sound = panels.copy()
    panels[:] = 0xFF
    try:
        yield
    finally:
        panels[:] = sound


@pytest.fixture(scope="module")
def sound(engine: Engine) -> dict[int, list[int]]:
    return {len(prompt): ids_of(engine, prompt) for prompt in (LONG, SHORT)}


def assert_sound(engine: Engine, sound: dict[int, list[int]]) -> None:
    # The short one first: the rest of the cache after it must not matter.
    for prompt in (SHORT, LONG, SHORT):
        assert ids_of(engine, prompt) == sound[len(prompt)]


@pytest.mark.parametrize("n_before", [0, 1, 5])
def test_a_stream_whose_logits_break_says_nothing_more(
    engine: Engine, sound: dict[int, list[int]], n_before: int
) -> None:
    begin(engine, LONG, max_tokens_per_call=1)
    said = [engine.generator.stream_ex() for _ in range(n_before)]
    with poisoned(engine):
        while True:  # what a draft had verified before still comes
            try:
                said.append(engine.generator.stream_ex())
            except NumericsError:
                break
    ids = [record.token_id for record in records_of(said)]
    assert ids == sound[len(LONG)][: len(ids)]
    assert len(ids) >= n_before
    assert_sound(engine, sound)


def test_a_prompt_that_broke_is_computed_again(engine: Engine, sound: dict[int, list[int]]) -> None:
    with poisoned(engine):
        begin(engine, LONG, isolation_key="new")
    with pytest.raises(NumericsError, match="position 160"):
        engine.generator.stream_ex()
    assert ids_of(engine, LONG, isolation_key="new") == sound[len(LONG)]
    assert_sound(engine, sound)


def test_a_negative_prompt_that_broke_is_computed_again(
    engine: Engine, sound: dict[int, list[int]]
) -> None:
    options: dict[str, Any] = {"negative_ids": LONG[:90], "cfg_scale": 1.5}
    guided = ids_of(engine, SHORT, **options)
    ids_of(engine, SHORT, negative_ids=SHORT, cfg_scale=1.5)
    begin(engine, SHORT)
    run(engine.generator)
    with poisoned(engine):
        begin(engine, SHORT, **options)
    with pytest.raises(NumericsError):
        run(engine.generator)
    assert ids_of(engine, SHORT, **options) == guided
    assert_sound(engine, sound)


@pytest.mark.parametrize("n_chunks", [100, 1], ids=["memory", "disk"])
def test_copies_of_what_broke_are_not_used_twice(path: Path, tmp_path: Path, n_chunks: int) -> None:
    engine = load_drafting(
        path, speculate="ngram", prefix_bytes=n_chunks * 50_000, prefix_directory=tmp_path
    )
    other = [*range(200, 300)]
    engine_ids = [ids_of(engine, prompt, isolation_key="fresh") for prompt in (LONG, other)]
    abort = AbortFlag()
    with poisoned(engine):
        begin(engine, LONG, abort=abort)
    # The logits of a stream that is aborted after its prompt are not read.
    abort.set()
    run(engine.generator)
    assert ids_of(engine, other) == engine_ids[1]  # its rest is copied for this one
    prefill = engine.generator.begin_stream_ex(LONG, SAMPLED, max_new_tokens=N_TOKENS)
    assert prefill.reuse.source == ("memory" if n_chunks > 1 else "disk")
    with pytest.raises(NumericsError):
        run(engine.generator)
    assert [ids_of(engine, prompt) for prompt in (LONG, other)] == engine_ids
    again = load_drafting(
        path, speculate="ngram", prefix_bytes=n_chunks * 50_000, prefix_directory=tmp_path
    )
    assert ids_of(again, LONG) == engine_ids[0], "nor by the next process"


def test_a_draft_model_that_broke_changes_no_text(
    engine: Engine, sound: dict[int, list[int]]
) -> None:
    panels: Any = cast(PanelMatrix, draft_model_of(engine).weights.layers[0].wqkv).panels
    before = panels.copy()
    panels[:] = np.uint8(0xFF)
    try:
        assert_sound(engine, sound)
    finally:
        panels[:] = before
    assert_sound(engine, sound)
