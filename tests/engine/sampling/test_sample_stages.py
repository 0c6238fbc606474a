"""Every stage of the sampler against plain loops over lists, alone and in any order."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.sampling.logits import Logits
from engine.sampling.request import SampleResult, Stage
from tests.support.plain_sampler import Plain, plain_stages
from tests.support.sample_requests import Sample, Stages, floats, make_request, some_logits

# A sample of values of every stage that are neither neutral nor likely to meet a tie.
PARAMETERS: dict[Stage, list[tuple[float, ...]]] = {
    Stage.SMOOTHING: [(0.11,), (1.7,)],
    Stage.TEMPERATURE: [(0.31,), (1.93,)],
    Stage.TOP_N_SIGMA: [(0.61,), (1.37,)],
    Stage.TOP_K: [(1,), (3,), (20,)],
    Stage.TOP_P: [(0.137,), (0.713,), (0.9871,)],
    Stage.TOP_A: [(0.213,), (0.813,)],
    Stage.MIN_P: [(0.0317,), (0.417,)],
    Stage.TFS: [(0.513,), (0.9513,)],
    Stage.TYPICAL: [(0.317,), (0.9317,)],
    Stage.MIROSTAT: [()],
    Stage.DYNAMIC_TEMPERATURE: [(0.4, 1.7, 1.0), (0.1, 2.3, 0.6)],
    Stage.XTC: [(0.5, 0.0713), (1.0, 0.1713)],
}
MUS = (0.3, 1.77, 4.13)


def as_plain(
    sample: Sample,
    logits: Logits,
    stages: Stages,
    *,
    u: float,
    mu: float = 1.77,
    u_xtc: float = 0.37,
    protected: frozenset[int] = frozenset(),
) -> bool:
    """False if a call was so close that rounding may legitimately decide it otherwise."""
    plain = plain_stages(logits.tolist(), stages, mu=mu, u_xtc=u_xtc, protected=protected)
    if plain.closest < 1e-6:
        return False
    request = make_request(
        u=u,
        stages=stages,
        vocab_size=logits.size,
        protected=protected,
        n_top=logits.size,
        mirostat_mu=mu,
        u_xtc=u_xtc,
        want_trace=True,
    )
    result = sample(logits, request)
    assert_distribution(result, plain)
    assert [step.stage for step in result.trace] == [stage.name.lower() for stage, _ in stages]
    best = int(logits.argmax())
    left = {token for token, _ in plain.tokens}
    has_lost_best = any(step.removed_argmax for step in result.trace)
    assert has_lost_best == (best not in left)
    assert [step.n_removed for step in result.trace] == plain.removed
    whole = plain_stages(logits.tolist(), []).probabilities()
    order = sorted(range(logits.size), key=lambda i: (-float(logits[i]), i))
    kept = math.fsum(p for token, p in zip(order, whole, strict=False) if token in left)
    expected = kept if any(plain.removed) else 1.0
    assert result.kept_mass == pytest.approx(expected, rel=1e-6)
    assert_drawn_at(u, result, plain)
    return True


def assert_distribution(result: SampleResult, plain: Plain) -> None:
    tokens = [token for token, _ in plain.tokens]
    expected = dict(zip(tokens, plain.probabilities(), strict=True))
    got = dict(zip(result.top_ids, result.top_p_sampled, strict=True))
    assert {token for token, p in got.items() if p > 0} <= set(tokens)
    for token, p in expected.items():
        assert got[token] == pytest.approx(p, rel=1e-6, abs=1e-300)
    assert result.p_sampled == pytest.approx(expected[result.token_id], rel=1e-6)


def assert_drawn_at(u: float, result: SampleResult, plain: Plain) -> None:
    """The drawn token is where the cumulative distribution passes u."""
    before = 0.0
    for (token, _), p in zip(plain.tokens, plain.probabilities(), strict=True):
        if token == result.token_id:
            assert before - 1e-6 <= u <= before + p + 1e-6
            return
        before += p
    raise AssertionError(f"{result.token_id} was removed")


@pytest.mark.parametrize("stage", PARAMETERS, ids=lambda stage: stage.name.lower())
@pytest.mark.parametrize("vocab_size", [1, 2, 3, 40, 300])
def test_a_stage_is_what_it_says(sample: Sample, stage: Stage, vocab_size: int) -> None:
    n_checked = 0
    for seed in range(6):
        logits = some_logits(vocab_size, seed=seed, scale=(0.3, 2.0, 6.0)[seed % 3])
        for parameters in PARAMETERS[stage]:
            for mu in MUS if stage == Stage.MIROSTAT else MUS[:1]:
                u = (0.0, 0.413, 1 - 2**-53)[seed % 3]
                n_checked += as_plain(sample, logits, [(stage, parameters)], u=u, mu=mu)
    assert n_checked >= 5, "else the cases are too close to call"


@st.composite
def stage_lists(draw: st.DrawFn) -> list[tuple[Stage, tuple[float, ...]]]:
    chosen = draw(st.permutations(list(PARAMETERS)))[: draw(st.integers(0, len(PARAMETERS)))]
    return [(stage, draw(st.sampled_from(PARAMETERS[stage]))) for stage in chosen]


# Few distinct values make ties; -inf is what the model, a mask or a ban leaves.
LOGITS = st.lists(
    st.one_of(st.sampled_from([-math.inf, -1.5, 0.0, 2.0]), st.floats(-12, 12, width=32)),
    min_size=1,
    max_size=24,
)


@given(data=st.data(), values=LOGITS, stages=stage_lists())
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
def test_stages_in_any_order(
    sample: Sample, data: st.DataObject, values: list[float], stages: Any
) -> None:
    assume(any(math.isfinite(value) for value in values))
    token_ids = st.integers(0, len(values) - 1)
    is_checked = as_plain(
        sample,
        floats(values),
        stages,
        u=data.draw(st.floats(0, 1, exclude_max=True)),
        mu=data.draw(st.sampled_from(MUS)),
        u_xtc=data.draw(st.sampled_from([0.0, 0.37, 0.93])),
        protected=data.draw(st.frozensets(token_ids)),
    )
    assume(is_checked)


def test_top_p_and_typical_keep_the_token_that_crosses(sample: Sample) -> None:
    logits = floats(np.log([0.5, 0.4, 0.1]))
    for stage in (Stage.TOP_P, Stage.TYPICAL):
        request = make_request(stages=[(stage, (0.8,))], n_top=3)
        result = sample(logits, request)
        assert result.top_p_sampled == pytest.approx((5 / 9, 4 / 9, 0.0), rel=1e-6)
        assert result.kept_mass == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("stage", "parameters"),
    [
        (Stage.TOP_P, (0.0,)),
        (Stage.TYPICAL, (0.0,)),
        (Stage.TOP_K, (1,)),
        (Stage.MIN_P, (1.0,)),
        (Stage.MIROSTAT, ()),
        (Stage.DYNAMIC_TEMPERATURE, (0.0, 1e-300, 1.0)),
        (Stage.TEMPERATURE, (5e-324,)),
        (Stage.TOP_N_SIGMA, (1e-6,)),
    ],
)
def test_one_candidate_is_always_left(
    sample: Sample, stage: Stage, parameters: tuple[float, ...]
) -> None:
    for values in ([0.25], [3.0, 1.0, 2.0], [-math.inf, 4.0], [3e38, -3e38]):
        stages = [(stage, parameters), (Stage.XTC, (1.0, 0.0)), (Stage.TFS, (0.0,))]
        request = make_request(stages=stages, u=0.99, mirostat_mu=-100.0)
        result = sample(floats(values), request)
        best = int(np.argmax(values))
        if stage != Stage.TYPICAL:
            assert result.token_id == best
        assert result.p_sampled == 1.0


def test_equal_candidates_are_cut_by_count_alone(sample: Sample) -> None:
    logits = np.zeros(10, dtype=np.float32)
    left = {
        Stage.TOP_K: (4, 4),
        Stage.TOP_P: (0.35, 4),
        Stage.TYPICAL: (0.35, 4),
        Stage.TOP_A: (0.9, 10),
        Stage.MIN_P: (1.0, 10),
        Stage.TFS: (0.5, 10),
        Stage.TOP_N_SIGMA: (0.5, 10),
    }
    for stage, (value, n_left) in left.items():
        result = sample(logits, make_request(stages=[(stage, (value,))], n_top=10))
        expected = [1 / n_left] * n_left + [0.0] * (10 - n_left)
        assert result.top_p_sampled == pytest.approx(expected), f"{stage.name}: lower ids first"


class TestXtc:
    LOGITS = floats(np.log([0.4, 0.3, 0.2, 0.1]))

    def left(self, sample: Sample, **values: Any) -> list[int]:
        stages = [(Stage.XTC, (values.pop("probability", 1.0), values.pop("threshold", 0.15)))]
        request = make_request(stages=stages, n_top=4, vocab_size=4, **values)
        result = sample(self.LOGITS, request)
        return [i for i, p in zip(result.top_ids, result.top_p_sampled, strict=True) if p > 0]

    def test_of_those_above_the_threshold_the_least_likely_stays(self, sample: Sample) -> None:
        assert self.left(sample) == [2, 3]
        assert self.left(sample, threshold=0.35) == [0, 1, 2, 3], "one alone is no choice"
        assert self.left(sample, threshold=0.0) == [3]

    def test_a_protected_token_is_neither_counted_nor_removed(self, sample: Sample) -> None:
        assert self.left(sample, protected=[0]) == [0, 2, 3]
        assert self.left(sample, protected=[2]) == [1, 2, 3]
        assert self.left(sample, protected=[0, 1]) == [0, 1, 2, 3]

    def test_it_strikes_with_its_probability(self, sample: Sample) -> None:
        assert self.left(sample, probability=0.5, u_xtc=0.499) == [2, 3]
        assert self.left(sample, probability=0.5, u_xtc=0.5) == [0, 1, 2, 3]


@pytest.mark.parametrize("skew", [-1.3, 0.7, 3.0])
def test_skew_draws_at_a_power_of_u(sample: Sample, skew: float) -> None:
    logits = some_logits(200)
    stages = [(Stage.TOP_P, (0.9713,))]
    for u in np.random.default_rng(1).random(60).tolist():
        skewed = sample(logits, make_request(u=u, stages=stages, skew=skew))
        powered = make_request(u=u ** math.exp(-skew), stages=stages)
        assert skewed.token_id == sample(logits, powered).token_id


def test_skewed_probabilities_are_those_of_the_draw(sample: Sample) -> None:
    logits = floats(np.log([0.5, 0.3, 0.2]))
    result = sample(logits, make_request(skew=math.log(2), n_top=3))
    # u^(1/2) is below c with probability c^2.
    assert result.top_p_sampled == pytest.approx((0.25, 0.64 - 0.25, 0.36), rel=1e-6)
    assert result.p_sampled == pytest.approx(0.25, rel=1e-6)
    assert result.kept_mass == 1.0


def test_the_trace_tells_who_removed_the_best(sample: Sample) -> None:
    logits = floats(np.log([0.4, 0.3, 0.2, 0.1]))
    request = make_request(
        stages=[(Stage.TEMPERATURE, (1.0,)), (Stage.TOP_K, (3,)), (Stage.XTC, (1.0, 0.25))],
        biases={3: -math.inf},
        banned=[1],
        allowed=[0, 1, 2],
        vocab_size=4,
        want_trace=True,
    )
    assert sample(logits, request).trace == (
        ("bias", 1, False),
        ("mask", 0, False),
        ("banned", 1, False),
        ("temperature", 0, False),
        ("top_k", 0, False),
        ("xtc", 1, True),
    )
    assert sample(logits, replace(request, want_trace=False)).trace == ()
    greedy = sample(logits, replace(request, greedy=True))
    assert [step.stage for step in greedy.trace] == ["bias", "mask", "banned"]
