"""The sampler op, native for every instruction set and in numpy, against a float64 definition."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import engine.sampling.op
from engine import InvalidInputError, NumericsError
from engine.sampling.logits import Logits
from engine.sampling.request import SampleRequest, Stage
from tests.support.sample_requests import Sample, floats, some_logits, usual_request

Array = npt.NDArray[np.float64]


def zeros(*shape: int) -> Logits:
    return np.zeros(shape, dtype=np.float32)


def softmax(logits: Array) -> Array:
    masses = np.exp(logits - logits.max())
    probs: Array = masses / masses.sum()
    return probs


def define(logits: Logits, request: SampleRequest) -> tuple[list[int], Array, float]:
    """(tokens kept, in descending order; their probabilities; distance of the filters from a tie).

    If the distance is tiny, rounding may legitimately keep one token more or less.
    """
    adjusted = logits.copy()
    for i in set(request.context.tolist()):
        value, penalty = float(adjusted[i]), request.repetition_penalty
        adjusted[i] = value / penalty if value > 0 else value * penalty
    for i, delta in zip(request.bias_ids.tolist(), request.bias_deltas, strict=True):
        adjusted[i] += delta
    values = adjusted.astype(np.float64)
    order = np.lexsort((np.arange(len(values)), -values))
    if request.greedy:
        return [int(order[0])], np.ones(1), 1.0
    setting = dict(zip(request.stages.tolist(), request.parameters[:, 0].tolist(), strict=True))
    temperature, top_k = setting.get(Stage.TEMPERATURE, 1.0), int(setting.get(Stage.TOP_K, 0))
    top_p, min_p = setting.get(Stage.TOP_P, 1.0), setting.get(Stage.MIN_P, 0.0)
    probs = softmax(values / temperature)[order]
    margin = 1.0
    if top_k:
        probs = probs[:top_k] / probs[:top_k].sum()
    if top_p < 1:
        cumulative = probs.cumsum()
        margin = min(margin, float(np.abs(cumulative - top_p).min()))
        kept = int((cumulative < top_p).sum()) + 1
        probs = probs[:kept] / probs[:kept].sum()
    if min_p:
        ratios = probs / probs[0]
        margin = min(margin, float(np.abs(ratios - min_p).min()))
        probs = probs[ratios >= min_p]
        probs = probs / probs.sum()
    return [int(i) for i in order[: len(probs)]], probs, margin


def kept_share(logits: Logits, request: SampleRequest, kept: list[int]) -> float:
    """Of the softmax of the adjusted logits, what the filters kept."""
    if request.greedy:
        return 1.0
    unfiltered = replace(request, stages=np.empty(0, dtype=np.int32), parameters=np.empty((0, 3)))
    _, probs, _ = define(logits, unfiltered)
    return float(probs[: len(kept)].sum())


def assert_as_defined(sample: Sample, logits: Logits, request: SampleRequest) -> None:
    before = logits.copy()
    result = sample(logits, request)
    assert np.array_equal(logits, before), "the logits must stay untouched"

    kept, probs, _ = define(logits, request)
    cumulative = probs.cumsum()
    chosen = kept.index(result.token_id)
    low, high = cumulative[chosen] - probs[chosen], cumulative[chosen]
    assert low - 1e-6 <= request.u <= high + 1e-6, f"u={request.u} is outside of {low} to {high}"
    assert probs[chosen] > 0
    assert result.p_sampled == pytest.approx(probs[chosen], rel=1e-6)

    values = logits.astype(np.float64)
    logprobs = values - values.max() - np.log(np.exp(values - values.max()).sum())
    assert result.logprob_raw == pytest.approx(logprobs[result.token_id], abs=1e-6)
    assert result.p_raw == pytest.approx(np.exp(result.logprob_raw), rel=1e-9)

    order = np.lexsort((np.arange(len(values)), -values))
    tops = [int(i) for i in order[: request.n_top] if values[i] > -np.inf]
    of_kept = dict(zip(kept, probs, strict=True))
    assert result.rank == order.tolist().index(result.token_id)
    finite = logprobs[values > -np.inf]
    error = 1e-6 * (1 + np.abs(values[values > -np.inf]).max())  # of a mean of logits
    assert result.entropy == pytest.approx(-(np.exp(finite) * finite).sum(), rel=1e-6, abs=error)
    first_two = np.exp(logprobs[order[:2]])
    margin = 1.0 if len(values) == 1 else float(first_two[0] - first_two[1])
    assert result.margin == pytest.approx(margin, rel=1e-6, abs=1e-6)
    assert result.kept_mass == pytest.approx(kept_share(logits, request, kept), rel=1e-6)
    assert list(result.top_ids) == tops
    assert result.top_logprobs_raw == pytest.approx(logprobs[tops], abs=1e-6)
    assert result.top_p_sampled == pytest.approx([of_kept.get(i, 0.0) for i in tops], rel=1e-6)


COMBINATIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3, "context": [0], "biases": {0: 0.5}},
    {"temperature": 0.3},
    {"temperature": 50.0},
    {"temperature": 0.001},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 100_000},
    {"top_p": 0.9},
    {"top_p": 1e-9},
    {"top_p": 0.999999},
    {"min_p": 0.02},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.1, "temperature": 0.7},
    {"repetition_penalty": 1.7, "context": [0], "biases": {0: -2.0}, "top_p": 0.7},
]


@pytest.mark.parametrize(
    ("vocab_size", "values"),
    [
        *((size, values) for size in (1, 2, 17, 4096) for values in COMBINATIONS),
        *((151936, values) for values in COMBINATIONS[::3]),
    ],
    ids=str,
)
def test_equals_the_definition(sample: Sample, vocab_size: int, values: dict[str, Any]) -> None:
    logits = some_logits(vocab_size)
    for u in (0.0, 0.37, 1 - 2**-53):
        assert_as_defined(sample, logits, usual_request(u=u, n_top=5, **values))


# Few distinct values make ties; -inf is what a mask leaves.
LOGITS = st.lists(
    st.one_of(st.sampled_from([-np.inf, -1.5, 0.0, 2.0]), st.floats(-30, 30, width=32)),
    min_size=1,
    max_size=40,
)


@given(data=st.data(), values=LOGITS)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_equals_the_definition_anywhere(
    sample: Sample, data: st.DataObject, values: list[float]
) -> None:
    logits = floats(values)
    assume(bool(np.isfinite(logits).any()))
    token_ids = st.integers(0, len(values) - 1)
    request = usual_request(
        temperature=data.draw(st.sampled_from([0.0, 0.2, 1.0, 3.0])),
        top_k=data.draw(st.sampled_from([0, 1, 3, 10])),
        top_p=data.draw(st.sampled_from([1.0, 0.95, 0.43])),
        min_p=data.draw(st.sampled_from([0.0, 0.031, 0.57])),
        u=data.draw(st.floats(0, 1, exclude_max=True)),
        n_top=data.draw(st.integers(0, 45)),
        repetition_penalty=data.draw(st.sampled_from([1.0, 1.2, 0.7])),
        context=data.draw(st.lists(token_ids)),
        biases=data.draw(st.dictionaries(token_ids, st.floats(-9, 9, width=32))),
    )
    assume(define(logits, request)[2] > 1e-6)
    assert_as_defined(sample, logits, request)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.0] * 5000, id="all equal"),
        pytest.param([30.0] + [0.001 * (i % 997) for i in range(5000)], id="one far above a crowd"),
        pytest.param([1.0, -np.inf] * 2000 + [-np.inf] * 1000, id="most masked"),
        pytest.param([3e38, -3e38, 0.0, -np.inf], id="the ends of float32"),
    ],
)
def test_awkward_distributions(sample: Sample, values: list[float]) -> None:
    logits = floats(values)
    for combination in ({}, {"top_k": 700}, {"top_p": 0.30011}, {"temperature": 0.0}):
        for u in (0.0, 0.5, 1 - 2**-53):
            assert_as_defined(sample, logits, usual_request(u=u, n_top=3, **combination))


def test_many_equal_logits(sample: Sample) -> None:
    logits = zeros(20_000)
    for combination in ({}, {"top_k": 15_000}, {"top_p": 0.5}, {"min_p": 0.9}):
        result = sample(logits, usual_request(u=0.3, n_top=4, **combination))
        n_kept = {"top_k": 15_000, "top_p": 10_000}.get(next(iter(combination), ""), 20_000)
        assert abs(result.token_id - 0.3 * n_kept) <= 1
        assert result.p_sampled == pytest.approx(1 / n_kept, rel=1e-3)
        assert result.top_ids == (0, 1, 2, 3)


def test_a_temperature_near_zero_takes_the_best_token(sample: Sample) -> None:
    logits = some_logits(1000)
    for temperature in (1e-12, 5e-324):
        result = sample(logits, usual_request(temperature=temperature, u=0.9))
        assert result.token_id == int(logits.argmax())
        assert result.p_sampled == 1.0


def test_ties_go_to_the_lower_id(sample: Sample) -> None:
    logits = floats([0.0, 2.0, 2.0, 2.0, 2.0])
    assert sample(logits, usual_request(temperature=0.0)).token_id == 1
    assert sample(logits, usual_request(top_k=2, u=0.5, n_top=4)).token_id == 2
    assert sample(logits, usual_request(top_k=2, n_top=4)).top_ids == (1, 2, 3, 4)
    assert sample(logits, usual_request(top_k=4, top_p=0.5, n_top=4)).top_p_sampled == (
        0.5,
        0.5,
        0,
        0,
    )


def test_a_masked_token_is_never_drawn(sample: Sample) -> None:
    logits = floats([-np.inf, 1.0, -np.inf])
    for u in (0.0, 0.5, 1 - 2**-53):
        result = sample(logits, usual_request(u=u, n_top=3))
        assert (result.token_id, result.p_sampled, result.top_ids) == (1, 1.0, (1,))


def test_draws_follow_the_distribution(sample: Sample) -> None:
    logits = floats([0.5, -1.0, 2.0, 1.9, -3.0])
    n_draws = 500
    for values in ({}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.95}, {"min_p": 0.1}):
        kept, probs, _ = define(logits, usual_request(**values))
        counts = dict.fromkeys(kept, 0)
        for u in np.random.default_rng(7).random(n_draws):
            counts[sample(logits, usual_request(u=float(u), **values)).token_id] += 1
        test = scipy.stats.chisquare(list(counts.values()), probs * n_draws)
        assert test.pvalue > 1e-3, f"{values}: drawn {counts}, expected {probs * n_draws}"


@pytest.mark.parametrize(
    ("values", "biases", "message"),
    [
        ([0.0, np.nan, 1.0], {}, "logits: nan at token 1"),
        ([0.0, 1.0, np.inf], {}, "logits: inf at token 2"),
        ([-np.inf, -np.inf], {}, "logits: none of 2 is finite"),
        ([np.nan, -np.inf], {0: -np.inf, 1: -np.inf}, "logits: nan at token 0"),
    ],
)
def test_logits_that_are_no_numbers(
    sample: Sample, values: list[float], biases: dict[int, float], message: str
) -> None:
    for temperature in (0.0, 1.0):
        request = usual_request(temperature=temperature, biases=biases)
        with pytest.raises(NumericsError, match=message):
            sample(floats(values), request)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        ([0.0, -np.inf], {"biases": {0: -np.inf}}, "logit_bias removed all 2"),
        ([3e38, 0.0], {"biases": {0: 3e38}}, "logit_bias make the logit of token 0 inf"),
        (
            [-3e38, 0.0],
            {"context": [0, 1], "repetition_penalty": 0.01, "biases": {0: np.inf}},
            "logit_bias and repetition_penalty make the logit of token 0 inf",
        ),
        (
            [3e38, 1.0],
            {"context": [0], "repetition_penalty": 0.01},
            "repetition_penalty make the logit of token 0 inf",
        ),
    ],
)
def test_what_the_request_makes_of_sound_logits_is_its_own_error(
    sample: Sample, values: list[float], settings: dict[str, Any], message: str
) -> None:
    for temperature in (0.0, 1.0):
        request = usual_request(temperature=temperature, **settings)
        with pytest.raises(InvalidInputError, match=message) as error:
            sample(floats(values), request)
        assert error.value.param == message.split()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": np.zeros(4)}, "logits: expected float32, got float64"),
        ({"logits": zeros(1, 4)}, r"logits: expected shape \(4,\), got \(1, 4\)"),
        ({"logits": zeros(8)[::2]}, "logits: expected contiguous"),
        ({"logits": zeros(0), "work": zeros(0)}, "logits: expected at least one"),
        ({"work": zeros(3)}, r"work: expected shape \(4,\), got \(3,\)"),
        (
            {"request": usual_request(context=[4], repetition_penalty=2.0)},
            "context.*token 4.*0 to 3",
        ),
        ({"request": usual_request(context=[-1], dry_multiplier=1.0)}, "context.*token -1"),
        ({"request": usual_request(biases={-1: 0.5})}, "bias_ids.*token -1.*0 to 3"),
        ({"request": usual_request(banned=[4])}, "banned_ids.*token 4.*0 to 3"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "logits": zeros(4),
        "request": usual_request(),
        "work": zeros(4),
    }
    with pytest.raises(ValueError, match=message):
        engine.sampling.op.sample(**(right | arguments))


def test_wrong_request_arrays_are_named() -> None:
    request = usual_request(biases={1: 0.5})
    for name, array in (
        ("context", np.zeros(1, dtype=np.int64)),
        ("bias_ids", np.zeros(1, dtype=np.int64)),
        ("bias_deltas", zeros(2)),
        ("banned_ids", np.zeros((1, 1), dtype=np.int32)),
        ("stages", np.zeros(1, dtype=np.int64)),
        ("parameters", np.zeros((1, 3))),
        ("mask", np.zeros(2, dtype=np.int32)),
        ("dry_breakers", np.zeros(1, dtype=np.uint32)),
        ("xtc_protected", np.zeros(0, dtype=np.int32)),
    ):
        wrong = replace(request, **{name: array})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            engine.sampling.op.sample(zeros(4), wrong, work=zeros(4))
