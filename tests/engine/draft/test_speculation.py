"""Drafts change how fast a text comes, and never the text, for any drafter and any length."""

from collections.abc import Iterator, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from engine import ConstraintSpec, Engine, ModelLoadError, SamplingSettings, StreamResult
from engine.draft import opening as speculation
from engine.draft.model import ModelDrafter
from engine.draft.row_costs import RowCosts
from engine.model.model import Model
from engine.sampling.request import SampleResult
from tests.support.scripted_model import assert_nothing_lost, records_of, run, text_of
from tests.support.tiny_models import save_model

PROMPT = [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7]
SETTINGS = {
    "greedy": SamplingSettings(temperature=0.0),
    "sampled": SamplingSettings(temperature=0.8, seed=4),
    "filtered": SamplingSettings(temperature=1.1, top_k=40, top_p=0.9, min_p=0.01, seed=5),
    "penalised": SamplingSettings(
        temperature=0.9, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2, seed=6
    ),
    "dry": SamplingSettings(temperature=0.7, dry_multiplier=0.8, seed=7),
    "xtc": SamplingSettings(temperature=1.0, xtc_probability=0.5, xtc_threshold=0.05, seed=8),
    "mirostat": SamplingSettings(temperature=1.0, mirostat=True, seed=9),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that repeats itself a little, with a draft model that often agrees."""
    path = tmp_path_factory.mktemp("speculation") / "model"
    save_model(path)
    save_model(path / "draft")  # the same weights: a draft that comes true
    return path


@pytest.fixture(scope="module")
def plain(path: Path) -> Engine:
    return Engine.load(path, device="cpu", dtype="float32")


@pytest.fixture(scope="module", params=["ngram", "draft", "other draft"])
def drafting(
    path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Engine:
    options: dict[str, Any] = {"speculate": request.param}
    if request.param == "other draft":
        other = tmp_path_factory.mktemp("other") / "draft"
        save_model(other, seed=1, num_hidden_layers=1)
        options = {"speculate": "draft", "draft_model": other}
    return load_drafting(path, **options)


class _UnsureDrafter(ModelDrafter):
    __init__ = partialmethod(ModelDrafter.__init__, min_confidence=0.0)


def load_drafting(path: Path, **options: Any) -> Engine:
    """An engine for which drafts pay, also those of a model or a block, which is asked first."""
    costs = iter([FlatCosts(1e-3)] if options["speculate"] in ("draft", "mtp") else [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speculation, "measure_row_costs", lambda *_: next(costs, FlatCosts(1.0)))
        # A random model is never sure.
        patch.setattr(speculation, "ModelDrafter", _UnsureDrafter)
        patch.setattr(speculation, "MIN_CONFIDENCE", 0.0)
        return Engine.load(path, device="cpu", **{"dtype": "float32", **options})


def draft_model_of(engine: Engine) -> Model:
    assert engine.speculator is not None
    _, drafter = engine.speculator.drafters
    assert isinstance(drafter, ModelDrafter)
    return drafter.model


class FlatCosts(RowCosts):
    """A pass takes the same time for any number of rows, and no clock decides a test."""

    def __init__(self, seconds: float) -> None:
        super().__init__((seconds,) * 5)

    def observe(self, n_rows: int, seconds: float) -> None:
        pass


def stream(
    engine: Engine, settings: SamplingSettings, prompt: Sequence[int] = PROMPT, **options: Any
) -> list[StreamResult]:
    options = {"max_new_tokens": 60, "ignore_eos": True, **options}
    engine.generator.begin_stream_ex(prompt, settings, return_top_tokens=3, **options)
    return run(engine.generator)


def said(results: Sequence[StreamResult]) -> list[tuple[Any, ...]]:
    """Everything that must not depend on drafts."""
    records = [*records_of(results), *results[-1].dropped]
    facts = [record._replace(origin="", proposed=None) for record in records]
    return [*facts, text_of(results), results[-1].eos_reason, results[-1].dropped_text]  # type: ignore[list-item]


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_text_with_every_drafter(plain: Engine, drafting: Engine, name: str) -> None:
    settings = SETTINGS[name]
    expected = said(stream(plain, settings))
    results = stream(drafting, settings)
    assert said(results) == expected, "every number too, bit for bit"
    assert said(stream(drafting, settings, max_tokens_per_call=1)) == expected
    assert said(stream(drafting, settings, speculate=False)) == expected
    assert_nothing_lost(results)
    ids = [record.token_id for record in records_of(results)]
    predicted = stream(drafting, settings, prediction=[*ids[:20], 3, *ids[20:]])
    assert said(predicted) == expected
    assert any(record.origin == "prediction" for record in records_of(predicted))


def test_drafts_do_come_true(drafting: Engine) -> None:
    results = stream(drafting, SETTINGS["greedy"])
    ids = [record.token_id for record in records_of(results)]
    again = stream(drafting, SETTINGS["greedy"], prediction=ids)
    assert sum(r.n_accepted for r in again) >= 40
    assert len(again) <= 30, "tokens of one pass come in one call"
    one_by_one = stream(drafting, SETTINGS["greedy"], prediction=ids, max_tokens_per_call=1)
    assert len(one_by_one) == 60


@pytest.mark.parametrize("name", ["greedy", "penalised", "mirostat"])
def test_a_long_copy_takes_few_passes(plain: Engine, drafting: Engine, name: str) -> None:
    settings = SETTINGS[name]
    expected = stream(plain, settings, max_new_tokens=110)
    ids = [record.token_id for record in records_of(expected)]
    copied = stream(drafting, settings, max_new_tokens=110, prediction=ids)
    assert said(copied) == said(expected)
    assert_nothing_lost(copied)
    assert len(copied) <= 6, "drafts of 15 tokens would take at least seven"
    wrong = [*ids[:70], (ids[70] + 1) % 300, *ids[71:]]
    corrected = stream(drafting, settings, max_new_tokens=110, prediction=wrong)
    assert said(corrected) == said(expected)


def test_every_drafter_is_asked(path: Path) -> None:
    for mode, origin in (("ngram", "ngram"), ("draft", "draft_model")):
        engine = load_drafting(path, speculate=mode)
        results = [*stream(engine, SETTINGS["greedy"]), *stream(engine, SETTINGS["greedy"])]
        assert origin in {record.origin for record in records_of(results)}


@pytest.mark.parametrize("name", ["greedy", "penalised", "mirostat"])
def test_banned_strings_and_stops_are_the_same(plain: Engine, drafting: Engine, name: str) -> None:
    settings = SETTINGS[name]
    text = text_of(stream(plain, settings))
    cases: list[dict[str, Any]] = [
        {"banned_strings": [text[10:13]]},
        {"banned_strings": [text[4:6], text[20:21]], "stop": [text[60:63]]},
        {"stop": [text[30:33]]},
        {"min_new_tokens": 20, "ignore_eos": False},
    ]
    for options in cases:
        expected = said(stream(plain, settings, **options))
        results = stream(drafting, settings, **options)
        assert said(results) == expected
        again = stream(
            drafting,
            settings,
            prediction=[r.token_id for r in records_of(results)],
            max_tokens_per_call=1,
            **options,
        )
        assert said(again) == expected


CONSTRAINTS = [
    ConstraintSpec("regex", r"[a-z]{3}-[0-9]{4} (yes|no), (yes|no)!"),
    ConstraintSpec("choices", ("the first of these", "the second of these")),
    ConstraintSpec(
        "json_schema",
        {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 6}, "n": {"type": "integer"}},
            "required": ["name", "n"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda spec: spec.kind)
@pytest.mark.parametrize("name", ["greedy", "sampled"])
def test_constraints_are_the_same(
    plain: Engine, drafting: Engine, constraint: ConstraintSpec, name: str
) -> None:
    settings = SETTINGS[name]
    expected = stream(plain, settings, constraint=constraint)
    results = stream(drafting, settings, constraint=constraint)
    assert said(results) == said(expected)
    banned: dict[str, Any] = {"constraint": constraint, "banned_strings": ["yes", "first"]}
    assert said(stream(drafting, settings, **banned)) == said(stream(plain, settings, **banned))


def test_what_a_hook_puts_in_ends_the_draft_behind_it(plain: Engine, drafting: Engine) -> None:
    def hook(sampled: SampleResult) -> int | None:
        return 17 if sampled.token_id % 4 == 0 else None

    for name in ("greedy", "sampled"):
        results = stream(plain, SETTINGS[name], on_token=hook)
        drawn = [
            record.token_id if record.origin != "hook" else 300 for record in records_of(results)
        ]
        assert 300 in drawn
        for prediction in (drawn, [record.token_id for record in records_of(results)]):
            again = stream(drafting, SETTINGS[name], on_token=hook, prediction=prediction)
            assert said(again) == said(results)


def test_guidance_is_the_same(plain: Engine, drafting: Engine) -> None:
    options: dict[str, Any] = {"negative_ids": [9, 8, 7], "cfg_scale": 1.8}
    for name in ("greedy", "sampled"):
        expected = said(stream(plain, SETTINGS[name], **options))
        assert said(stream(drafting, SETTINGS[name], **options)) == expected


def test_the_context_is_filled_to_its_end(plain: Engine, drafting: Engine) -> None:
    prompt = [5, 6, 7, 8] * 60
    expected = stream(plain, SETTINGS["greedy"], prompt, max_new_tokens=None)
    results = stream(drafting, SETTINGS["greedy"], prompt, max_new_tokens=None)
    assert len(records_of(results)) == 256 - 240
    assert said(results) == said(expected)
    for n in (1, 2, 5):
        got = stream(drafting, SETTINGS["greedy"], max_new_tokens=n, prediction=[1] * 20)
        assert said(got) == said(stream(plain, SETTINGS["greedy"], max_new_tokens=n))


def conversations() -> Iterator[list[int]]:
    for turn in range(4):
        yield [11, 12, 13] * (turn + 3)
        yield [21, 22, 23, 24] * (turn + 2)


def test_streams_in_turn_do_not_disturb_each_other(plain: Engine, drafting: Engine) -> None:
    for name in ("sampled", "dry"):
        for prompt in conversations():
            expected = said(stream(plain, SETTINGS[name], prompt))
            assert said(stream(drafting, SETTINGS[name], prompt)) == expected


def test_what_cannot_draft_is_refused_at_load(path: Path, tmp_path: Path) -> None:
    def load(**options: Any) -> None:
        Engine.load(path, device="cpu", dtype="float32", **options)

    with pytest.raises(ModelLoadError, match="speculate: must be one of off, ngram, draft"):
        load(speculate="maybe")
    with pytest.raises(ModelLoadError, match="used with speculate=draft or eagle, not 'ngram'"):
        load(speculate="ngram", draft_model=path / "draft")
    with pytest.raises(ModelLoadError, match="is not a model"):
        load(speculate="draft", draft_model=tmp_path)
    save_model(tmp_path / "small", vocab_size=300)
    (tmp_path / "small" / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match="300 embedding rows, the model has 320"):
        load(speculate="draft", draft_model=tmp_path / "small")
    with pytest.raises(ModelLoadError, match="does not contain one in draft/"):
        Engine.load(path / "draft", device="cpu", speculate="draft")
