"""Penalties, DRY, bias and masks against plain loops; what happens when nothing is left."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import InvalidInputError, NumericsError
from engine.errors import NoTokenError
from engine.sampling.logits import Logits
from tests.support.plain_sampler import dried, penalized
from tests.support.sample_requests import Sample, floats, make_request, some_logits

V = 9


def adjusted_logits(sample: Sample, logits: Logits, **values: Any) -> np.ndarray:
    """What the op makes of the logits, up to a constant, seen through the probabilities."""
    result = sample(logits, make_request(n_top=logits.size, vocab_size=logits.size, **values))
    adjusted = np.full(logits.size, -math.inf)
    with np.errstate(divide="ignore"):
        adjusted[list(result.top_ids)] = np.log(result.top_p_sampled)
    return adjusted


def assert_same(got: np.ndarray, expected: list[float]) -> None:
    """Equal up to a constant."""
    wanted = np.array(expected, dtype=np.float32).astype(np.float64)
    wanted = wanted - wanted.max()
    assert got - got.max() == pytest.approx(wanted, abs=2e-6)


CONTEXTS = st.lists(st.integers(0, V - 1), max_size=40)
EXAMPLES = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@given(data=st.data(), context=CONTEXTS)
@EXAMPLES
def test_penalties_with_range_and_decay(
    sample: Sample, data: st.DataObject, context: list[int]
) -> None:
    values: dict[str, Any] = {
        "n_prompt": data.draw(st.integers(0, len(context))),
        "repetition_penalty": data.draw(st.sampled_from([1.0, 1.3, 0.8])),
        "frequency_penalty": data.draw(st.sampled_from([0.0, 0.4, -0.3])),
        "presence_penalty": data.draw(st.sampled_from([0.0, 0.7])),
        "repetition_range": data.draw(st.sampled_from([-1, 0, 1, 5, 100])),
        "repetition_decay": data.draw(st.sampled_from([0, 1, 4, 50])),
    }
    logits = some_logits(V)
    got = adjusted_logits(sample, logits, context=context, **values)
    assert_same(got, penalized(logits.tolist(), context, **values))


@given(data=st.data(), context=st.lists(st.integers(0, 3), max_size=40))
@EXAMPLES
def test_dry(sample: Sample, data: st.DataObject, context: list[int]) -> None:
    values: dict[str, Any] = {
        "dry_multiplier": 0.8,
        "dry_base": data.draw(st.sampled_from([1.0, 1.3])),
        "dry_allowed_length": data.draw(st.sampled_from([0, 1, 2, 4])),
        "dry_range": data.draw(st.sampled_from([0, 1, 2, 6, 100])),
        "dry_max_ngram": data.draw(st.sampled_from([1, 2, 5, 20])),
    }
    breakers = data.draw(st.none() | st.frozensets(st.integers(0, 3), max_size=2))
    logits = some_logits(V)
    got = adjusted_logits(sample, logits, context=context, breakers=breakers, **values)
    plain = dried(logits.tolist(), context, breakers=breakers or frozenset(), **values)
    assert_same(got, plain)


def test_dry_counts_the_longest_repeat_once(sample: Sample) -> None:
    # 7 stood before 1 2 3 twice, and 8 once after the shorter 2 3.
    context = [0, 1, 2, 3, 7, 0, 1, 2, 3, 7, 5, 2, 3, 8, 0, 1, 2, 3]
    logits = np.zeros(V, dtype=np.float32)
    values: dict[str, Any] = {"dry_multiplier": 0.5, "dry_base": 2.0, "dry_allowed_length": 2}
    got = adjusted_logits(sample, logits, context=context, **values)
    # Four of 7's, 0 1 2 3, are preceded by 7 here and by nothing there; the last ones by 8.
    assert got - got[0] == pytest.approx([0, 0, 0, 0, 0, 0, 0, -0.5 * 2**2, -0.5], abs=1e-6)


@pytest.mark.parametrize("max_ngram", [1, 2, 3, 4, 5, 9])
def test_dry_tells_no_repeats_apart_that_are_longer_than_its_limit(
    sample: Sample, max_ngram: int
) -> None:
    values: dict[str, Any] = {
        "dry_multiplier": 0.5,
        "dry_base": 2.0,
        "dry_allowed_length": 1,
    }
    logits = np.zeros(V, dtype=np.float32)
    context = [1, 2, 3, 4, 7, 0, 1, 2, 3, 4]  # a repeat of four
    got = adjusted_logits(sample, logits, context=context, dry_max_ngram=max_ngram, **values)
    assert got[7] - got[0] == pytest.approx(-0.5 * 2.0 ** (min(max_ngram, 4) - 1), abs=1e-6)


def test_dry_stops_at_a_breaker(sample: Sample) -> None:
    logits = np.zeros(V, dtype=np.float32)
    values: dict[str, Any] = {"dry_multiplier": 0.5, "dry_base": 2.0, "dry_allowed_length": 1}
    context = [1, 2, 3, 7, 1, 2, 3]
    for breakers, length in (([], 3), ([1], 2), ([2], 1), ([3], 0), ([7], 0)):
        got = adjusted_logits(sample, logits, context=context, breakers=breakers, **values)
        expected = -0.5 * 2.0 ** (length - 1) if length else 0.0
        assert got[7] - got[0] == pytest.approx(expected, abs=1e-6)


def test_an_enormous_dry_penalty_is_still_a_number(sample: Sample) -> None:
    logits = np.zeros(2, dtype=np.float32)
    values: dict[str, Any] = {"dry_multiplier": 100.0, "dry_base": 100.0, "dry_max_ngram": 100}
    request = make_request(context=[0] * 200 + [1] * 200, greedy=True, **values)
    assert sample(logits, request).token_id == 0
    request = make_request(context=[0] * 200, n_top=2, u=0.5, **values)
    assert sample(logits, request).token_id == 1


def test_masks_and_bans_remove(sample: Sample) -> None:
    logits = some_logits(70)
    request = make_request(
        allowed=[3, 31, 32, 63, 64, 69], banned=[31, 31, 5], vocab_size=70, n_top=70
    )
    result = sample(logits, request)
    left = {i for i, p in zip(result.top_ids, result.top_p_sampled, strict=True) if p > 0}
    assert left == {3, 32, 63, 64, 69}
    request = replace(request, greedy=True)
    expected = max(left, key=lambda i: float(logits[i]))
    assert (sample(logits, request).token_id, sample(logits, request).p_sampled) == (expected, 1.0)


def test_order_of_the_adjustments(sample: Sample) -> None:
    """The bias is added to what the penalties left, and no bias brings a banned token back."""
    logits = floats([2.0, 1.0, 0.0])
    request = make_request(
        context=[0], repetition_penalty=2.0, biases={0: 5.0, 2: 9.0}, banned=[2], n_top=3
    )
    result = sample(logits, request)
    masses = np.exp([6.0, 1.0])
    expected = (*(masses / masses.sum()).tolist(), 0.0)
    assert result.top_p_sampled == pytest.approx(expected, rel=1e-6)
    assert result.p_raw == pytest.approx(math.exp(2) / sum(map(math.exp, (2, 1, 0))))


@pytest.mark.parametrize("greedy", [False, True])
def test_nothing_left_says_what_took_it(sample: Sample, greedy: bool) -> None:
    logits = floats([0.0, -math.inf, 1.0])
    rest: dict[str, Any] = {"greedy": greedy, "vocab_size": 3}
    with pytest.raises(InvalidInputError, match="allowed and banned tokens removed all 3") as e:
        sample(logits, make_request(allowed=[1], **rest))
    assert e.value.param == "allowed_tokens"
    with pytest.raises(InvalidInputError, match="allowed and banned tokens"):
        sample(logits, make_request(allowed=[0], banned=[0], **rest))
    with pytest.raises(NoTokenError, match="left to draw: logit_bias removed all 3") as e:
        sample(logits, make_request(biases={0: -math.inf, 2: -math.inf}, **rest))
    assert e.value.param == "logit_bias"
    with pytest.raises(NoTokenError, match="tokens and logit_bias removed all 3") as e:
        sample(logits, make_request(biases={0: -math.inf}, banned=[2], **rest))
    assert e.value.param == "banned_tokens"
    with pytest.raises(NumericsError, match=r"^logits: none of 2"):
        sample(floats([-math.inf] * 2), make_request(greedy=greedy))
