"""Token healing end to end: the first token takes the place of the prompt's last."""

from pathlib import Path
from typing import Any

import pytest

from engine import (
    ConstraintSpec,
    Engine,
    InvalidInputError,
    SamplingSettings,
    StreamingGenerator,
    StreamResult,
)
from tests.engine.draft.test_speculation import load_drafting, said
from tests.support.scripted_model import (
    END,
    GREEDY,
    HIDDEN,
    PieceVocabulary,
    ScriptedModel,
    assert_nothing_lost,
    records_of,
    run,
    text_of,
)
from tests.support.tiny_models import save_model

PIECES = [b"he", b"hello", b"help", b" you", b"", b"x", b"hex"]
HE, HELLO, HELP, YOU, EMPTY, X, HEX = range(7)


def scripted(script: list[Any], *, n_prompt: int = 2) -> StreamingGenerator:
    model = ScriptedModel(script)
    model.n_prompt = n_prompt
    return model.generator(PieceVocabulary(PIECES))


def healed(generator: StreamingGenerator, last: int = HE, **options: Any) -> list[StreamResult]:
    prefill = generator.begin_stream_ex([X, YOU, last], GREEDY, token_healing=True, **options)
    assert prefill.n_prompt == generator.n_prompt_tokens == 3
    results = run(generator)
    assert_nothing_lost(results)
    return results


def test_the_first_token_begins_with_the_bytes_of_the_last_one() -> None:
    generator = scripted([[YOU, END, X, HELLO, HE], YOU, END])
    results = healed(generator, return_logits=True)
    assert text_of(results) == "llo you", "the prompt's part is not repeated"
    first, second = records_of(results)
    assert (first.token_id, first.token_bytes) == (HELLO, b"llo")
    assert (first.text_start, first.text_end, second.text_start) == (0, 3, 3)
    assert [r.healed for r in results] == [HE, None, None], "reported once"
    assert generator.n_completion_tokens == 3, "the healed token counts, and the end"
    assert sum(len(r.logits) for r in results if r.logits is not None) == 3


def test_the_last_token_may_stay_as_it_was() -> None:
    results = healed(scripted([[YOU, HE], YOU, END]))
    assert text_of(results) == " you"
    assert records_of(results)[0][:4] == (HE, b"", 0, 0)
    assert results[0].healed == HE


@pytest.mark.parametrize("prompt", [[HE], [X, HIDDEN], [X, EMPTY]])
def test_what_cannot_be_a_part_of_another_token_stays(prompt: list[int]) -> None:
    generator = scripted([YOU, END], n_prompt=len(prompt))
    prefill = generator.begin_stream_ex(prompt, GREEDY, token_healing=True)
    results = run(generator)
    assert text_of(results) == " you"
    assert all(result.healed is None for result in results)
    assert prefill.n_prompt == len(prompt)


def test_strings_are_looked_for_behind_the_prompt() -> None:
    script: list[Any] = [[HELLO, HELP, HEX], YOU, END]
    banned = healed(scripted(script), banned_strings=["llo"])
    assert text_of(banned) == "lp you"
    assert [r.suppressed for r in banned if r.suppressed] == ["llo"]
    assert [r.healed for r in banned if r.healed is not None] == [HE]
    both = healed(scripted(script), banned_strings=["lp", "llo", "x y"])
    # "he" of the prompt is no part of the text, and the last way out is the token itself.
    assert text_of(both) == " you"
    assert text_of(healed(scripted(script), banned_strings=["hello"])) == "llo you"
    stopped = healed(scripted(script), stop=["lo"])
    assert (text_of(stopped), stopped[-1].dropped_text) == ("l", "lo")
    assert stopped[-1].healed == HE


def test_the_first_token_may_be_the_last_one_and_may_stop() -> None:
    assert text_of(healed(scripted([HELLO, YOU]), max_new_tokens=1)) == "llo"
    results = healed(scripted([HELLO, YOU]), stop_token_ids=[HELLO])
    assert (text_of(results), results[-1].stop_token_id, results[-1].healed) == ("", HELLO, HE)
    later = healed(scripted([[END, HELLO], END]))
    assert text_of(later) == "llo", "an end does not begin with the prompt's last token"


def test_a_hook_must_heal_as_well() -> None:
    generator = scripted([HELLO, END])
    swap = {HELLO: HEX}
    results = healed(generator, on_token=lambda sampled: swap.get(sampled.token_id))
    assert text_of(results) == "x"
    swap[HELLO] = YOU
    with pytest.raises(InvalidInputError, match="must begin with b'he'"):
        healed(generator, on_token=lambda sampled: swap.get(sampled.token_id))
    assert text_of(healed(generator)) == "llo", "the next stream is whole"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("healing") / "model"
    save_model(path)
    save_model(path / "draft")
    return path


@pytest.fixture(scope="module", params=["off", "ngram", "draft"])
def tiny(path: Path, request: pytest.FixtureRequest) -> Engine:
    return load_drafting(path, speculate=request.param)


def answer(engine: Engine, prompt: str, seed: int, **options: Any) -> list[StreamResult]:
    engine.generator.begin_stream_ex(
        engine.tokenizer.encode(prompt),
        SamplingSettings(seed=seed),
        token_healing=True,
        max_new_tokens=24,
        **options,
    )
    results = run(engine.generator)
    assert_nothing_lost(results)
    return results


CONSTRAINT = ConstraintSpec("regex", "[a-z]*er was (cold|warm)\\.")


@pytest.mark.parametrize("constraint", [None, CONSTRAINT], ids=["free", "constrained"])
@pytest.mark.parametrize("banned", [[], ["e", "cold"]], ids=["all", "banned"])
def test_healing_is_the_same_whatever_drafts_and_whatever_is_cached(
    tiny: Engine, path: Path, constraint: ConstraintSpec | None, banned: list[str]
) -> None:
    tokenizer = tiny.tokenizer
    options: dict[str, Any] = {"constraint": constraint, "ignore_eos": True}
    if constraint is None:
        options["banned_strings"] = banned
    elif banned:
        options["banned_strings"] = ["cold"]
    prompt = "the otter was in the r"
    last = tokenizer.encode(prompt)[-1]
    for seed in range(4):
        plain = Engine.load(path, device="cpu", dtype="float32")
        expected = answer(plain, prompt, seed, **options)
        results = answer(tiny, prompt, seed, **options)
        assert said(results) == said(expected)
        first = records_of(results)[0]
        whole = tokenizer.token_bytes(first.token_id)
        assert whole == tokenizer.token_bytes(last) + first.token_bytes
        assert next(r.healed for r in results if r.tokens) == last
        predicted = [record.token_id for record in records_of(results)]
        for more in ({"prediction": predicted}, {"max_tokens_per_call": 1}):
            assert said(answer(tiny, prompt, seed, **options, **more)) == said(expected)
        text = text_of(results)
        assert not any(string in text.lower() for string in options.get("banned_strings", ()))
        if results[-1].eos_reason == "constraint":
            assert text.endswith(("er was warm.", "er was cold."))
