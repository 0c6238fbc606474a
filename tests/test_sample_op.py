"""The sampler op, native for every instruction set and in numpy, against a float64 definition."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import engine.sample
from engine import NumericsError, _native, sample_ref
from engine.sample import Logits, SampleRequest, SampleResult

Array = npt.NDArray[np.float64]
Sample = Callable[[Logits, SampleRequest], SampleResult]


@pytest.fixture(params=["numpy", *_native.supported_isas()])
def sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    best = _native.isa()
    run = sample_ref.sample if request.param == "numpy" else engine.sample.sample
    if request.param != "numpy":
        assert _native.select_isa(request.param)
    yield lambda logits, req: run(logits, req, work=np.empty_like(logits))
    assert _native.select_isa(best)


def make_request(
    *,
    repetition_ids: list[int] | None = None,
    biases: dict[int, float] | None = None,
    **values: Any,
) -> SampleRequest:
    neutral: dict[str, Any] = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "u": 0.0,
        "n_top": 0,
        "repetition_penalty": 1.0,
    }
    biases = biases or {}
    return SampleRequest(
        **(neutral | values),
        repetition_ids=np.array(repetition_ids or [], dtype=np.int32),
        delta_ids=np.array(list(biases), dtype=np.int32),
        deltas=np.array(list(biases.values()), dtype=np.float32),
    )


def zeros(*shape: int) -> Logits:
    return np.zeros(shape, dtype=np.float32)


def softmax(logits: Array) -> Array:
    masses = np.exp(logits - logits.max())
    probs: Array = masses / masses.sum()
    return probs


def define(logits: Logits, request: SampleRequest) -> tuple[list[int], Array, float]:
    """(tokens kept, in descending order; their probabilities; distance of the filters from a tie).

    Where the distance is tiny, rounding may legitimately keep one token more or less.
    """
    adjusted = logits.copy()
    for i in request.repetition_ids.tolist():
        penalty = np.float32(request.repetition_penalty)
        adjusted[i] = adjusted[i] / penalty if adjusted[i] > 0 else adjusted[i] * penalty
    for i, delta in zip(request.delta_ids.tolist(), request.deltas, strict=True):
        adjusted[i] += delta
    values = adjusted.astype(np.float64)
    order = np.lexsort((np.arange(len(values)), -values))
    if request.temperature == 0:
        return [int(order[0])], np.ones(1), 1.0
    probs = softmax(values / request.temperature)[order]
    margin = 1.0
    if request.top_k:
        probs = probs[: request.top_k] / probs[: request.top_k].sum()
    if request.top_p < 1:
        cumulative = probs.cumsum()
        margin = min(margin, float(np.abs(cumulative - request.top_p).min()))
        kept = int((cumulative < request.top_p).sum()) + 1
        probs = probs[:kept] / probs[:kept].sum()
    if request.min_p:
        ratios = probs / probs[0]
        margin = min(margin, float(np.abs(ratios - request.min_p).min()))
        probs = probs[ratios >= request.min_p]
        probs = probs / probs.sum()
    return [int(i) for i in order[: len(probs)]], probs, margin


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
    assert result.p_sampled == pytest.approx(probs[chosen], rel=1e-9)

    values = logits.astype(np.float64)
    logprobs = values - values.max() - np.log(np.exp(values - values.max()).sum())
    assert result.logprob_raw == pytest.approx(logprobs[result.token_id], abs=1e-9)
    assert result.p_raw == pytest.approx(np.exp(result.logprob_raw), rel=1e-9)

    order = np.lexsort((np.arange(len(values)), -values))
    tops = [int(i) for i in order[: request.n_top] if values[i] > -np.inf]
    of_kept = dict(zip(kept, probs, strict=True))
    assert list(result.top_ids) == tops
    assert result.top_logprobs_raw == pytest.approx(logprobs[tops], abs=1e-9)
    assert result.top_p_sampled == pytest.approx([of_kept.get(i, 0.0) for i in tops], abs=1e-9)


def floats(values: npt.ArrayLike) -> Logits:
    return np.array(values, dtype=np.float32)


def some_logits(vocab_size: int, scale: float = 3.0) -> Logits:
    return floats(np.random.default_rng(vocab_size).standard_normal(vocab_size) * scale)


COMBINATIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3, "repetition_ids": [0], "biases": {0: 0.5}},
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
    {"repetition_penalty": 1.7, "repetition_ids": [0], "biases": {0: -2.0}, "top_p": 0.7},
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
        assert_as_defined(sample, logits, make_request(u=u, n_top=5, **values))


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
    request = make_request(
        temperature=data.draw(st.sampled_from([0.0, 0.2, 1.0, 3.0])),
        top_k=data.draw(st.sampled_from([0, 1, 3, 10])),
        top_p=data.draw(st.sampled_from([1.0, 0.95, 0.43])),
        min_p=data.draw(st.sampled_from([0.0, 0.031, 0.57])),
        u=data.draw(st.floats(0, 1, exclude_max=True)),
        n_top=data.draw(st.integers(0, 45)),
        repetition_penalty=data.draw(st.sampled_from([1.0, 1.2, 0.7])),
        repetition_ids=data.draw(st.lists(token_ids, unique=True)),
        biases=data.draw(st.dictionaries(token_ids, st.floats(-9, 9, width=32))),
    )
    assume(define(logits, request)[2] > 1e-9)
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
            assert_as_defined(sample, logits, make_request(u=u, n_top=3, **combination))


def test_many_equal_logits(sample: Sample) -> None:
    logits = zeros(20_000)
    for combination in ({}, {"top_k": 15_000}, {"top_p": 0.5}, {"min_p": 0.9}):
        result = sample(logits, make_request(u=0.3, n_top=4, **combination))
        n_kept = {"top_k": 15_000, "top_p": 10_000}.get(next(iter(combination), ""), 20_000)
        assert abs(result.token_id - 0.3 * n_kept) <= 1
        assert result.p_sampled == pytest.approx(1 / n_kept, rel=1e-3)
        assert result.top_ids == (0, 1, 2, 3)


def test_a_temperature_near_zero_takes_the_best_token(sample: Sample) -> None:
    logits = some_logits(1000)
    for temperature in (1e-12, 5e-324):
        result = sample(logits, make_request(temperature=temperature, u=0.9))
        assert result.token_id == int(logits.argmax())
        assert result.p_sampled == 1.0


def test_ties_go_to_the_lower_id(sample: Sample) -> None:
    logits = floats([0.0, 2.0, 2.0, 2.0, 2.0])
    assert sample(logits, make_request(temperature=0.0)).token_id == 1
    assert sample(logits, make_request(top_k=2, u=0.5, n_top=4)).token_id == 2
    assert sample(logits, make_request(top_k=2, n_top=4)).top_ids == (1, 2, 3, 4)
    assert sample(logits, make_request(top_k=4, top_p=0.5, n_top=4)).top_p_sampled == (
        0.5,
        0.5,
        0,
        0,
    )


def test_a_masked_token_is_never_drawn(sample: Sample) -> None:
    logits = floats([-np.inf, 1.0, -np.inf])
    for u in (0.0, 0.5, 1 - 2**-53):
        result = sample(logits, make_request(u=u, n_top=3))
        assert (result.token_id, result.p_sampled, result.top_ids) == (1, 1.0, (1,))


def test_draws_follow_the_distribution(sample: Sample) -> None:
    logits = floats([0.5, -1.0, 2.0, 1.9, -3.0])
    n_draws = 500
    for values in ({}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.95}, {"min_p": 0.1}):
        kept, probs, _ = define(logits, make_request(**values))
        counts = dict.fromkeys(kept, 0)
        for u in np.random.default_rng(7).random(n_draws):
            counts[sample(logits, make_request(u=float(u), **values)).token_id] += 1
        test = scipy.stats.chisquare(list(counts.values()), probs * n_draws)
        assert test.pvalue > 1e-3, f"{values}: drawn {counts}, expected {probs * n_draws}"


@pytest.mark.parametrize(
    ("values", "biases", "message"),
    [
        ([0.0, np.nan, 1.0], {}, "logits: nan at token 1"),
        ([0.0, 1.0, np.inf], {}, "logits: inf at token 2"),
        ([-np.inf, -np.inf], {}, "logits: none of 2 is finite"),
        ([0.0, -np.inf], {0: -np.inf}, "after penalties and biases: none of 2 is finite"),
        ([3e38, 0.0], {0: 3e38}, "after penalties and biases: inf at token 0"),
    ],
)
def test_logits_that_are_no_numbers(
    sample: Sample, values: list[float], biases: dict[int, float], message: str
) -> None:
    for temperature in (0.0, 1.0):
        request = make_request(temperature=temperature, biases=biases)
        with pytest.raises(NumericsError, match=message):
            sample(floats(values), request)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logits": np.zeros(4)}, "logits: expected float32, got float64"),
        ({"logits": zeros(1, 4)}, r"logits: expected shape \(4,\), got \(1, 4\)"),
        ({"logits": zeros(8)[::2]}, "logits: expected contiguous"),
        ({"logits": zeros(0), "work": zeros(0)}, "logits: expected at least one"),
        ({"work": zeros(3)}, r"work: expected shape \(4,\), got \(3,\)"),
        ({"request": make_request(repetition_ids=[4])}, "repetition_ids.*token 4.*0 to 3"),
        ({"request": make_request(biases={-1: 0.5})}, "delta_ids.*token -1.*0 to 3"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {
        "logits": zeros(4),
        "request": make_request(),
        "work": zeros(4),
    }
    with pytest.raises(ValueError, match=message):
        engine.sample.sample(**(right | arguments))


def test_wrong_request_arrays_are_named() -> None:
    request = make_request(biases={1: 0.5})
    for name, array in (
        ("repetition_ids", np.zeros(1, dtype=np.int64)),
        ("delta_ids", np.zeros(1, dtype=np.int64)),
        ("deltas", zeros(2)),
    ):
        wrong = replace(request, **{name: array})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            engine.sample.sample(zeros(4), wrong, work=zeros(4))
