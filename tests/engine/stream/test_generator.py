"""The generator: what a stream says, how it ends, and that nothing is lost between the two.

A scripted model makes the texts that are wanted (multi-byte characters, stop strings at every cut);
a tiny random model of the real kind makes the equivalences.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import (
    AbortFlag,
    ConstraintSpec,
    ContextLengthError,
    Engine,
    InvalidInputError,
    NumericsError,
    SamplingSettings,
    StreamingGenerator,
)
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


def test_the_documented_loop_runs_as_written() -> None:
    generator = ScriptedModel([*b"Hello", END]).generator()
    generator.begin_stream_ex(np.array([[1]]), GREEDY, return_probabilities=True)
    text = ""
    while True:
        result = generator.stream_ex()
        text += result["chunk"]
        if result["eos"]:
            break
    assert text == "Hello"
    assert result["eos_reason"] == "stop_token"
    assert (result.stop_token_id, [t.token_id for t in result.dropped]) == (END, [END])
    assert generator.n_completion_tokens == 6, "the stop token counts"
    assert dict(result).keys() == set(result)


@given(st.text(min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_text_is_never_garbled_byte_by_byte(text: str) -> None:
    generator = ScriptedModel([*text.encode(), END]).generator()
    generator.begin_stream_ex([1], GREEDY)
    results = run(generator)
    assert text_of(results) == text
    assert_nothing_lost(results)


@pytest.mark.parametrize("stop", ["STOP", "S", "one S", "OP t", "é", "two é!"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 40])
def test_stop_strings_are_cut_at_every_boundary(stop: str, size: int) -> None:
    text = "one STOP two é!"
    data = text.encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    generator = ScriptedModel([*range(len(pieces)), END]).generator(PieceVocabulary(pieces))
    generator.begin_stream_ex([1], GREEDY, stop=[stop])
    results = run(generator)
    assert text_of(results) == text.partition(stop)[0]
    assert (results[-1].eos_reason, results[-1].stop_string) == ("stop_string", stop)
    assert results[-1].dropped_text.startswith(stop)
    assert_nothing_lost(results)


def test_text_held_for_a_stop_string_is_released_at_every_end() -> None:
    for options, reason in [({"max_new_tokens": 3}, "length"), ({}, "stop_token")]:
        generator = ScriptedModel([*b"aST", END]).generator()
        generator.begin_stream_ex([1], GREEDY, stop=["STOP"], **options)
        results = run(generator)
        assert [result.chunk for result in results][:2] == ["a", ""]
        assert text_of(results) == "aST"
        assert results[-1].eos_reason == reason
        assert_nothing_lost(results)


def test_an_incomplete_character_is_shown_as_such_at_the_end() -> None:
    generator = ScriptedModel([*"aé".encode()]).generator()
    generator.begin_stream_ex([1], GREEDY, max_new_tokens=2)
    results = run(generator)
    assert text_of(results) == "a\ufffd"
    assert_nothing_lost(results)


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    for decode_special_tokens, expected in [(False, "ab"), (True, "a<end>b")]:
        generator = ScriptedModel([*b"a", HIDDEN, *b"b", END]).generator()
        generator.begin_stream_ex([1], GREEDY, decode_special_tokens=decode_special_tokens)
        results = run(generator)
        assert text_of(results) == expected
        assert [record.is_special for record in records_of(results)] == [False, True, False]
        assert_nothing_lost(results)


def test_stop_tokens_of_the_request_and_ignored_eos() -> None:
    generator = ScriptedModel([*b"ab", END, *b"cd"]).generator()
    generator.begin_stream_ex([1], GREEDY, stop_token_ids=[ord("b")])
    assert text_of(run(generator)) == "a"
    generator.begin_stream_ex([1], GREEDY, ignore_eos=True, max_new_tokens=5)
    results = run(generator)
    assert (text_of(results), results[-1].eos_reason) == ("abcd", "length")


def test_every_end_token_of_the_model_ends() -> None:
    for end in (END, HIDDEN):
        model = ScriptedModel([*b"ab", end, *b"cd"])
        generator = model.generator(eos_token_ids=(END, HIDDEN))
        generator.begin_stream_ex([1], GREEDY)
        results = run(generator)
        assert (text_of(results), results[-1].stop_token_id) == ("ab", end)
        generator.begin_stream_ex([1], GREEDY, ignore_eos=True, max_new_tokens=4)
        assert text_of(run(generator)) == "abc"


def test_max_new_tokens_and_the_context_end_are_exact() -> None:
    for max_seq_len, n_prompt, wanted, expected in [
        (400, 3, 7, 7),
        (10, 6, None, 4),
        (10, 9, 5, 1),
    ]:
        model = ScriptedModel([ord("x")] * 50, max_seq_len=max_seq_len)
        model.n_prompt = n_prompt
        generator = model.generator()
        generator.begin_stream_ex([1] * n_prompt, GREEDY, max_new_tokens=wanted)
        results = run(generator)
        assert (len(text_of(results)), results[-1].eos_reason) == (expected, "length")
        assert generator.n_completion_tokens == expected
    generator.begin_stream_ex([1] * 9, GREEDY, max_new_tokens=0)
    assert [(r.chunk, r.eos_reason) for r in run(generator)] == [("", "length")]


def test_both_probabilities_and_alternatives() -> None:
    generator = ScriptedModel([*b"a", END]).generator()
    flat = SamplingSettings(temperature=0.5, top_k=2, seed=1, repetition_penalty=1.2)
    generator.begin_stream_ex(
        [1], flat, return_probabilities=True, return_top_tokens=3, return_logits=True
    )
    result = generator.stream_ex()
    (token,) = result.tokens
    assert result.logits is not None
    assert result.logits.dtype == np.float32
    masses = np.exp(result.logits[0].astype(np.float64))
    raw = masses / masses.sum()
    assert [top.token_id for top in token.top] == np.argsort(-raw)[:3].tolist()
    for top in token.top:
        assert top.p_raw == pytest.approx(float(raw[top.token_id]), rel=1e-5)
    assert token.p_raw == pytest.approx(float(raw[token.token_id]), rel=1e-5)
    assert token.top[2].p_sampled == 0.0
    assert result["probs"] == (token.p_sampled,)
    assert result["top_tokens"] == (tuple(top.token_id for top in token.top),)
    assert result["top_probs"] == (tuple(top.p_sampled for top in token.top),)


def test_abort_ends_the_stream_and_keeps_what_was_held() -> None:
    generator = ScriptedModel([*b"aSTxyz", END]).generator()
    abort = AbortFlag()
    generator.begin_stream_ex([1], GREEDY, stop=["STOP"], abort=abort)
    results = [generator.stream_ex() for _ in range(3)]
    abort.set()
    results += run(generator)
    assert (text_of(results), results[-1].eos_reason) == ("aST", "aborted")
    assert_nothing_lost(results)
    with pytest.raises(InvalidInputError, match="no stream is running"):
        generator.stream_ex()


def test_logits_that_are_no_numbers_end_the_stream_and_empty_the_cache() -> None:
    model = ScriptedModel([*b"abcdef", END])
    generator = model.generator()
    model.fault = lambda position: float("nan") if position == 2 else 0.0
    generator.begin_stream_ex([1], GREEDY)
    assert generator.stream_ex().chunk + generator.stream_ex().chunk == "ab"
    with pytest.raises(NumericsError, match="position 3"):
        generator.stream_ex()
    model.fault = lambda position: 0.0
    assert generator.begin_stream_ex([1], GREEDY).n_cached == 0
    assert text_of(run(generator)) == "abcdef", "the next stream is whole"


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ([], {}, "input_ids"),
        ([258], {}, "input_ids"),
        ([-1], {}, "input_ids"),
        ([1.5], {}, "input_ids"),
        (np.array([1.0, 2.0]), {}, "input_ids"),
        ([1] * 400, {}, "input_ids"),
        (torch.zeros(2, 3, dtype=torch.int64), {}, "input_ids"),
        (np.zeros((1, 2, 3), dtype=np.int64), {}, "input_ids"),
        ([1], {"max_new_tokens": -1}, "max_new_tokens"),
        ([1], {"min_new_tokens": -1}, "min_new_tokens"),
        ([1], {"max_new_tokens": 1, "min_new_tokens": 2}, "min_new_tokens"),
        ([1], {"negative_ids": [], "cfg_scale": 2.0}, "negative_ids"),
        ([1], {"negative_ids": [258]}, "negative_ids"),
        ([1], {"stop": [""]}, "stop"),
        ([1], {"stop": "abc"}, "stop"),
        ([1], {"stop_token_ids": [258]}, "stop_token_ids"),
        ([1], {"return_top_tokens": 259}, "return_top_tokens"),
        ([1], {"settings": SamplingSettings(logit_bias={258: 1.0})}, "logit_bias"),
    ],
)
def test_bad_input_is_named_before_any_work(
    prompt: list[int], options: dict[str, object], param: str
) -> None:
    model = ScriptedModel([END])
    generator = model.generator()
    with pytest.raises(InvalidInputError) as caught:
        generator.begin_stream_ex(prompt, **options)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert model.n_prefilled == 0
    if len(prompt) == 400:
        assert isinstance(caught.value, ContextLengthError)


def test_a_common_beginning_is_not_prefilled_again() -> None:
    model = ScriptedModel([*b"abc", END])
    generator = model.generator()
    generator.begin_stream_ex([5, 6, 7, 8], GREEDY, max_new_tokens=2)
    run(generator)
    prefill = generator.begin_stream_ex([5, 6, 7, 9, 9], GREEDY)
    assert (prefill.n_cached, model.n_prefilled) == (3, 1)
    prefill = generator.begin_stream_ex([5, 6, 7, 9, 9], GREEDY)
    assert (prefill.n_cached, model.n_prefilled) == (4, 0), "the last token is always forwarded"
    assert (generator.n_prompt_tokens, generator.n_cached_tokens) == (5, 4)


# The equivalences below run on a tiny random model of the real kind.

SAMPLED = SamplingSettings(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=11)


def completion(
    generator: StreamingGenerator, prompt: list[int], with_settings: SamplingSettings
) -> list[int]:
    generator.begin_stream_ex(prompt, with_settings, max_new_tokens=24, ignore_eos=True)
    return [record.token_id for record in records_of(run(generator))]


def test_the_same_text_with_and_without_a_cached_prefix(tiny_engine: Engine) -> None:
    prompt = list(range(5, 45))
    fresh = completion(tiny_engine.generator, prompt, SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "whole prompt cached"
    completion(tiny_engine.generator, [*prompt[:17], 3, 3, 3], SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "part of the prompt cached"
    completion(tiny_engine.generator, [2], SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "nothing cached"
    assert completion(tiny_engine.generator, prompt, replace(SAMPLED, seed=12)) != fresh


def test_a_conversation_reuses_its_own_completion(tiny_engine: Engine) -> None:
    prompt = [7, 8, 9]
    answer = completion(tiny_engine.generator, prompt, GREEDY)
    prefill = tiny_engine.generator.begin_stream_ex([*prompt, *answer, 4], GREEDY)
    # The last sampled token was never forwarded, so its keys and values do not exist yet.
    assert prefill.n_cached == len(prompt) + len(answer) - 1


def test_abort_in_the_very_first_prefill(tiny_engine: Engine) -> None:
    abort = AbortFlag()
    abort.set()
    prompt = list(range(5, 45))
    prefill = tiny_engine.generator.begin_stream_ex(prompt, SAMPLED, abort=abort)
    assert prefill.aborted
    assert [r.eos_reason for r in run(tiny_engine.generator)] == ["aborted"]
    assert tiny_engine.generator.begin_stream_ex(prompt, SAMPLED).n_cached == 0
    aborted = completion(tiny_engine.generator, prompt, SAMPLED)
    completion(tiny_engine.generator, [2], SAMPLED)
    assert aborted == completion(tiny_engine.generator, prompt, SAMPLED)


def test_abort_in_prefill_leaves_a_usable_cache(tiny_engine: Engine) -> None:
    prompt = list(range(5, 45))
    fresh = completion(tiny_engine.generator, prompt, SAMPLED)
    completion(tiny_engine.generator, [2], SAMPLED)
    abort = AbortFlag()
    abort.set()
    prefill = tiny_engine.generator.begin_stream_ex(prompt, SAMPLED, abort=abort)
    assert prefill.aborted
    assert [r.eos_reason for r in run(tiny_engine.generator)] == ["aborted"]
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token_healing": True},
        {"stop": ["a"], "banned_strings": ["b"]},
        {"negative_ids": [3, 4], "cfg_scale": 1.5},
        {"return_top_tokens": 3, "return_logits": True, "return_trace": True},
        {"prediction": [1, 2], "stop_token_ids": [5]},
        {"constraint": ConstraintSpec("regex", "a+")},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
@pytest.mark.parametrize("n_prompt", [1, 2, 40])
def test_nothing_is_sampled_when_no_token_may_come(
    tiny_engine: Engine, n_prompt: int, options: dict[str, Any]
) -> None:
    drawn: list[object] = []
    prefill = tiny_engine.generator.begin_stream_ex(
        list(range(10, 10 + n_prompt)), max_new_tokens=0, on_token=drawn.append, **options
    )
    assert (prefill.n_prompt, prefill.aborted) == (n_prompt, False)
    (result,) = run(tiny_engine.generator)
    assert (result.chunk, result.tokens, result.dropped) == ("", (), ())
    assert (result.eos, result.eos_reason, result.healed) == (True, "length", None)
    assert (drawn, tiny_engine.generator.n_completion_tokens) == ([], 0)
    with pytest.raises(InvalidInputError, match="no stream is running"):
        tiny_engine.generator.stream_ex()


def test_a_constraint_that_fails_in_the_stream_has_the_name_of_its_field(
    tiny_engine: Engine,
) -> None:
    spec = ConstraintSpec("regex", "[0-9]+", param="guided_regex")
    (letter,) = tiny_engine.tokenizer.encode("a", add_special_tokens=False)
    tiny_engine.generator.begin_stream_ex([10], constraint=spec, on_token=lambda _: letter)
    with pytest.raises(InvalidInputError, match="is not allowed by the constraint") as error:
        tiny_engine.generator.stream_ex()
    assert error.value.param == "guided_regex"
