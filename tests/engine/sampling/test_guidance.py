"""Classifier-free guidance: the same text as transformers', and both prompts are reused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from engine import ContextLengthError, Engine, InvalidInputError, SamplingSettings
from engine.sampling.guidance import guided, log_softmax
from tests.support.scripted_model import records_of, run, text_of
from tests.support.tiny_models import save_model

GREEDY = SamplingSettings(temperature=0.0)
PROMPT, NEGATIVE = [7, 8, 9, 10, 11], [20, 21, 22]


def guided_ids(engine: Engine, scale: float, **options: object) -> list[int]:
    options = {"negative_ids": NEGATIVE, "max_new_tokens": 20, **options}
    engine.generator.begin_stream_ex(
        PROMPT,
        GREEDY,
        cfg_scale=scale,
        ignore_eos=True,
        **options,
    )
    return [record.token_id for record in records_of(run(engine.generator))]


def replayed(engine: Engine, token_ids: list[int]) -> list[int]:
    forced = iter(token_ids)
    return guided_ids(engine, 2.0, on_token=lambda sampled: next(forced))


@pytest.mark.parametrize("scale", [0.0, 0.5, 1.5, 3.0])
def test_the_same_tokens_as_transformers(tmp_path: Path, scale: float) -> None:
    oracle = save_model(tmp_path)
    engine = Engine.load(tmp_path, device="cpu", dtype="float32")
    expected = oracle.generate(
        torch.tensor([PROMPT]),
        negative_prompt_ids=torch.tensor([NEGATIVE]),
        guidance_scale=scale,
        do_sample=False,
        max_new_tokens=20,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(PROMPT) :].tolist()
    assert guided_ids(engine, scale) == expected
    assert guided_ids(engine, scale) == expected, "with both prompts reused"
    assert guided_ids(engine, scale, max_tokens_per_call=1) == expected


def test_the_mix_is_the_definition() -> None:
    rng = np.random.default_rng(0)
    rows, negative = rng.normal(0, 4, (2, 3, 50)).astype(np.float32)
    p = np.exp(rows.astype(np.float64))
    p /= p.sum(axis=-1, keepdims=True)
    q = np.exp(negative.astype(np.float64))
    q /= q.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(log_softmax(rows), np.log(p), atol=2e-6)
    np.testing.assert_allclose(
        guided(rows, negative, 1.7), 1.7 * np.log(p) - 0.7 * np.log(q), atol=1e-5
    )


def test_another_negative_prompt_is_not_taken_for_the_one_before(tiny_engine: Engine) -> None:
    first = guided_ids(tiny_engine, 2.0)
    other = guided_ids(tiny_engine, 2.0, negative_ids=[*NEGATIVE[:2], 99, 98])
    assert other != first
    assert guided_ids(tiny_engine, 2.0) == first
    assert guided_ids(tiny_engine, 2.0, negative_ids=[*NEGATIVE[:2], 99, 98]) == other


def test_scale_one_is_no_guidance(tiny_engine: Engine) -> None:
    plain = guided_ids(tiny_engine, 1.0, negative_ids=None)
    assert guided_ids(tiny_engine, 1.0) == plain
    assert guided_ids(tiny_engine, 2.5) != plain


def test_a_banned_string_goes_back_in_both_sequences(tiny_engine: Engine) -> None:
    plain = guided_ids(tiny_engine, 2.0)
    for first in (0, 4):
        word = tiny_engine.tokenizer.decode(plain[first : first + 2])
        banned = guided_ids(tiny_engine, 2.0, banned_strings=[word])
        assert banned != plain
        assert replayed(tiny_engine, banned) == banned
        tail = guided_ids(tiny_engine, 2.0, banned_strings=[word])
        assert tail == banned


def test_what_does_not_fit_is_refused(tiny_engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match=r"cfg_scale must be between -100.0 and 100.0"):
        guided_ids(tiny_engine, 101.0)
    with pytest.raises(InvalidInputError, match=r"cfg_scale 2\.0 needs a negative prompt"):
        guided_ids(tiny_engine, 2.0, negative_ids=None)
    with pytest.raises(InvalidInputError, match="negative prompt is empty"):
        guided_ids(tiny_engine, 2.0, negative_ids=[])
    with pytest.raises(ContextLengthError) as caught:
        guided_ids(tiny_engine, 2.0, negative_ids=[1] * 256)
    assert caught.value.param == "negative_ids"
    # The longer of the two prompts leaves the room.
    engine = tiny_engine
    engine.generator.begin_stream_ex(
        PROMPT, GREEDY, negative_ids=[1] * 250, cfg_scale=2.0, ignore_eos=True
    )
    results = run(engine.generator)
    assert (len(records_of(results)), results[-1].eos_reason) == (6, "length")
    assert text_of(results)
