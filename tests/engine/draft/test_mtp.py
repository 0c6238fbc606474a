"""The block that predicts one token more: its logits, and that its drafts change no bit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, ModelLoadError
from engine.model.model import Model
from tests.support.drafted import (
    PROMPT,
    SETTINGS,
    FixedCosts,
    block_drafter,
    drafted_after,
    origins_when_right,
    told,
    with_cheap_drafts,
)
from tests.support.family_models import FAMILY_MODELS
from tests.support.predictor_models import Floats, save_predicting
from tests.support.tiny_models import save_model

PAIRS = Path(__file__).parents[1] / "gguf" / "pairs"


@dataclass(frozen=True)
class Case:
    """A model with a block."""

    path: Path
    dtype: str
    prompt: list[int]
    predicted: Floats  # (vocab_size,): after the prompt, by the block


CONVERTED = sorted(file.stem for file in PAIRS.glob("*-mtp-*.gguf"))
SAVED = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "glm4_moe", "glm4_moe with tables")
# Of each kind: the others differ in what comes before and after the block.
FOR_TEXTS = ("qwen3_5", "qwen3_next", "glm4_moe with tables", "qwen35-mtp-bf16", "glm4moe-mtp-bf16")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """By name, those that were asked for."""
    return {}


def case_of(name: str, cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> Case:
    if name not in cases:
        if name in CONVERTED:
            with np.load(PAIRS / f"{name}.npz") as kept:
                prompt, predicted = kept["token_ids"].tolist(), kept["predicted"][-1]
            cases[name] = Case(PAIRS / f"{name}.gguf", "auto", prompt, predicted)
        else:
            family, _, tables = name.partition(" with ")
            path = tmp_path_factory.mktemp("mtp") / family
            block = save_predicting(path, FAMILY_MODELS[family], own_tables=bool(tables))
            cases[name] = Case(path, "float32", PROMPT, block.logits(PROMPT)[-1])
    return cases[name]


@pytest.fixture(scope="module", params=FOR_TEXTS)
def case(
    request: pytest.FixtureRequest,
    cases: dict[str, Case],
    tmp_path_factory: pytest.TempPathFactory,
) -> Case:
    return case_of(request.param, cases, tmp_path_factory)


@pytest.fixture(scope="module")
def plain(case: Case) -> Engine:
    return Engine.load(case.path, device="cpu", dtype=case.dtype)


def load(case: Case, **options: Any) -> Engine:
    return with_cheap_drafts(
        lambda: Engine.load(case.path, device="cpu", dtype=case.dtype, speculate="mtp", **options)
    )


@pytest.fixture(scope="module")
def drafting(case: Case) -> Engine:
    return load(case)


@pytest.mark.parametrize("name", [*SAVED, *CONVERTED])
def test_the_logits_of_the_block_are_those_of_the_reference(
    name: str, cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = case_of(name, cases, tmp_path_factory)
    engine, found = load(case), list[Any]()

    def watched(self: Model, token_ids: list[int], cache: Any) -> Any:
        rows = decode(self, token_ids, cache)
        if self is drafter.block.model:
            found.append(np.array(rows))
        return rows

    drafter, decode = block_drafter(engine), Model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "decode", watched)
        engine.generator.begin_stream_ex(case.prompt, SETTINGS["greedy"], max_new_tokens=2)
        drafter.prospect(1)
        drafter.draft(1)
    assert np.abs(found[0][-1] - case.predicted).max() < 1e-4
    assert drafter.positions == list(range(len(case.prompt) - 1))


@pytest.mark.parametrize("name", SETTINGS)
def test_drafts_change_no_bit(plain: Engine, drafting: Engine, name: str) -> None:
    assert told(drafting, name) == told(plain, name)
    text = told(plain, name)
    following = [*PROMPT, *(record.token_id for record in text), 9, 10, 11]
    assert told(drafting, name, following) == told(plain, name, following)
    other = [*PROMPT[:20], 3, *PROMPT[21:]]
    assert told(drafting, name, other) == told(plain, name, other)


def test_banned_strings_take_the_block_back_too(plain: Engine, drafting: Engine) -> None:
    text = plain.tokenizer.decode([record.token_id for record in told(plain, "greedy")])
    banned = [text[6:8], text[12:15]]
    assert told(drafting, "greedy", banned_strings=banned) == told(
        plain, "greedy", banned_strings=banned
    )


def test_long_prompts_and_guidance_change_no_bit(plain: Engine, drafting: Engine) -> None:
    long = [11 * i % 290 + 5 for i in range(200)]
    guided = {"negative_ids": long[:50], "cfg_scale": 1.5}
    for prompt, options in ((long, {}), (PROMPT, guided), (long[:150], {}), (long, guided)):
        expected = told(plain, "greedy", prompt, **options)
        assert told(drafting, "greedy", prompt, **options) == expected


def test_a_long_copy_leaves_the_block_its_entries(plain: Engine, case: Case) -> None:
    drafting = load(case)  # which knows no earlier text
    text = [record.token_id for record in told(plain, "greedy", max_new_tokens=80)]
    for prediction in (text, [*text[:50], 3, *text[51:]]):
        copied = told(drafting, "greedy", max_new_tokens=80, prediction=prediction)
        assert [record.token_id for record in copied] == text
        drafter = block_drafter(drafting)
        drafter.prospect(1)
        drafter.draft(1)
        assert drafter.positions == list(range(len(PROMPT) + 79)), "none was left out"


def test_the_block_is_asked(drafting: Engine) -> None:
    told(drafting, "greedy")
    assert drafting.speculator is not None
    assert drafting.speculator.stats.by_origin["mtp"].drafted > 0


def test_what_its_passes_took_is_observed(drafting: Engine) -> None:
    costs = block_drafter(drafting).row_costs
    assert isinstance(costs, FixedCosts)
    costs.passes.clear()
    drafted_after(drafting, PROMPT, 3)
    assert costs.passes == [1, 1, 1], "the prompt's entries are no pass of few rows"


def test_a_draft_that_comes_true_says_where_it_comes_from(drafting: Engine) -> None:
    assert origins_when_right(drafting).count("mtp") > 5


def test_another_isolation_key_leaves_nothing(drafting: Engine) -> None:
    drafter = block_drafter(drafting)
    told(drafting, "greedy", isolation_key="anna")
    assert drafter.positions
    drafter.begin(PROMPT, None, "ben")
    assert not drafter.positions
    drafter.end()


def test_a_model_without_a_block_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    with pytest.raises(ModelLoadError, match="mtp needs a model with a block"):
        Engine.load(tmp_path, device="cpu", speculate="mtp")


def test_the_block_wakes_with_its_model(plain: Engine, drafting: Engine) -> None:
    drafting.sleep()
    drafting.wake()
    assert told(drafting, "greedy") == told(plain, "greedy")
    assert drafting.generator.draft_counts["mtp"].drafted
