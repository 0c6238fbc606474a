"""The native sampler against its twin in numpy, over all that a request can ask for, on every
instruction set; and what it promises beyond: thread counts, precision, memory of its own.
"""

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import engine.sampling.op
from engine.native import _cpu
from engine.sampling.request import SampleRequest, SampleResult, Stage
from tests.support.sample_requests import (
    LOGITS,
    Sample,
    assert_close,
    floats,
    is_robust,
    make_request,
    outcome,
    reference,
    some_logits,
    usual_request,
)

PARAMETERS: dict[Stage, list[tuple[float, ...]]] = {
    Stage.SMOOTHING: [(0.1,), (2.0,)],
    Stage.TEMPERATURE: [(0.3,), (1.7,)],
    Stage.TOP_N_SIGMA: [(0.7,), (2.5,)],
    Stage.TOP_K: [(1.0,), (7.0,), (1000.0,)],
    Stage.TOP_P: [(0.35,), (0.93,)],
    Stage.TOP_A: [(0.07,), (0.6,)],
    Stage.MIN_P: [(0.013,), (0.41,)],
    Stage.TFS: [(0.55,), (0.97,)],
    Stage.TYPICAL: [(0.4,), (0.96,)],
    Stage.MIROSTAT: [()],
    Stage.DYNAMIC_TEMPERATURE: [(0.4, 1.6, 1.0), (0.8, 3.0, 0.5)],
    Stage.XTC: [(0.5, 0.03), (1.0, 0.2)],
}


@pytest.fixture(params=_cpu.supported_isas())
def native_sample(request: pytest.FixtureRequest) -> Iterator[Sample]:
    best = _cpu.isa()
    assert _cpu.select_isa(request.param)
    yield lambda logits, req: engine.sampling.op.sample(logits, req, work=np.empty_like(logits))
    assert _cpu.select_isa(best)


@st.composite
def requests(draw: st.DrawFn, vocab_size: int) -> SampleRequest:
    ids = st.integers(0, vocab_size - 1)
    some_ids = st.lists(ids, max_size=60)
    stages = draw(st.lists(st.sampled_from(list(PARAMETERS)), unique=True))
    values: dict[str, Any] = {
        "u": draw(st.floats(0, 0.999)),
        "u_xtc": draw(st.floats(0, 1, exclude_max=True)),
        "greedy": draw(st.integers(0, 9)) == 0,
        "n_top": draw(st.integers(0, 12)),
        "want_trace": draw(st.booleans()),
        "stages": [(stage, draw(st.sampled_from(PARAMETERS[stage]))) for stage in stages],
        "context": (context := draw(some_ids)),
        "n_prompt": draw(st.integers(0, len(context))),
        "mirostat_mu": draw(st.sampled_from([0.7, 3.0, 9.0])),
        "skew": draw(st.sampled_from([0.0, 0.0, 0.4, -1.0])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.2, 0.8])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.3, -0.4])),
        "presence_penalty": draw(st.sampled_from([0.0, 0.6])),
        "repetition_range": draw(st.sampled_from([-1, 0, 5, 1000])),
        "repetition_decay": draw(st.sampled_from([0, 3, 40])),
        "biases": draw(st.dictionaries(ids, st.sampled_from([-np.inf, -2.0, 1.5]), max_size=4)),
        "dry_multiplier": draw(st.sampled_from([0.0, 0.8])),
        "dry_allowed_length": draw(st.integers(1, 3)),
        "dry_range": draw(st.sampled_from([0, 11])),
        "dry_max_ngram": draw(st.sampled_from([2, 20])),
        "banned": draw(st.lists(ids, max_size=3)),
    }
    for name in ("allowed", "breakers", "protected"):
        if draw(st.integers(0, 2)) == 0:
            values[name] = draw(st.sets(ids))
    return make_request(vocab_size=vocab_size, **values)


@given(data=st.data(), values=LOGITS)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_equals_the_reference(native_sample: Sample, data: st.DataObject, values: Any) -> None:
    logits = floats(values)
    assume(bool(np.isfinite(logits).any()))
    request = data.draw(requests(len(values)))
    wanted = outcome(reference, logits, request)
    assume(is_robust(logits, request, wanted))
    got = outcome(native_sample, logits, request)
    if isinstance(wanted, str) or isinstance(got, str):
        assert got == wanted
    else:
        assert_close(got, wanted, logits)


@pytest.mark.parametrize("least", [2.0**-126, 1e-30, 1e-17])
@pytest.mark.parametrize("vocab_size", [2, 300, 3000])
def test_top_n_sigma_divides_logits_whose_masses_are_equal(
    native_sample: Sample, least: float, vocab_size: int
) -> None:
    logits = floats([0.0] * (vocab_size - 1) + [least])
    request = make_request(vocab_size=vocab_size, u=0.4, stages=[(Stage.TOP_N_SIGMA, (0.7,))])
    wanted = outcome(reference, logits, request)
    assert isinstance(wanted, SampleResult)
    assert wanted.token_id == vocab_size - 1
    got = outcome(native_sample, logits, request)
    assert isinstance(got, SampleResult)
    assert_close(got, wanted, logits)


@pytest.mark.parametrize("vocab_size", [1, 2, 127, 129, 2049, 4100, 33_000, 70_001])
@pytest.mark.parametrize("order", ["as it is", "reversed", "without the first filters"])
def test_equals_the_reference_at_every_size(
    native_sample: Sample, vocab_size: int, order: str
) -> None:
    stages = [(stage, PARAMETERS[stage][-1]) for stage in PARAMETERS]
    if order == "reversed":
        stages.reverse()
    if order == "without the first filters":
        stages = [pair for pair in stages if pair[0] not in (Stage.TOP_N_SIGMA, Stage.TOP_K)]
    logits = some_logits(vocab_size)
    context = np.random.default_rng(1).integers(0, min(vocab_size, 50), 400).tolist()
    request = make_request(
        u=0.42,
        u_xtc=0.3,
        n_top=7,
        stages=stages,
        context=context,
        n_prompt=100,
        repetition_penalty=1.1,
        frequency_penalty=0.05,
        dry_multiplier=0.5,
        biases={0: 1.0},
        mirostat_mu=7.0,
        allowed=range(0, vocab_size, 2),
        vocab_size=vocab_size,
    )
    assert_close(native_sample(logits, request), reference(logits, request), logits)


@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 12.0])
@pytest.mark.parametrize("shift", [0.0, -700.0, 1e6])
def test_the_sums_are_precise(native_sample: Sample, scale: float, shift: float) -> None:
    logits = some_logits(20_000, scale=scale) + np.float32(shift)
    wide = logits.astype(np.float64)
    for temperature in (0.01, 0.7, 1.0, 40.0):
        result = native_sample(logits, usual_request(temperature=temperature, u=0.5))
        exponents = (wide - wide.max()) / temperature
        p = np.exp(exponents) / np.exp(exponents).sum()
        assert result.p_sampled == pytest.approx(p[result.token_id], rel=3e-7)
    logprobs = wide - wide.max() - math.log(np.exp(wide - wide.max()).sum())
    assert result.logprob_raw == pytest.approx(logprobs[result.token_id], abs=3e-7)


def test_the_thread_count_changes_nothing(native_sample: Sample) -> None:
    logits = some_logits(131_072)
    request = usual_request(temperature=0.8, top_p=0.9, u=0.7, n_top=3, context=[5])
    request.repetition_penalty = 1.3
    n_threads = _cpu.threads()
    results = []
    for count in (1, 2, 3):
        _cpu.set_threads(count)
        results.append(native_sample(logits, request))
    _cpu.set_threads(n_threads)
    assert results[0] == results[1] == results[2]


def test_instruction_sets_agree_to_the_bit_where_sums_are_blocks() -> None:
    best = _cpu.isa()
    logits = some_logits(5000)
    request = usual_request(temperature=0.8, top_k=50, u=0.7, n_top=3)
    results = set()
    for isa in _cpu.supported_isas():
        assert _cpu.select_isa(isa)
        results.add(engine.sampling.op.sample(logits, request, work=np.empty_like(logits)))
    assert _cpu.select_isa(best)
    assert len(results) == 1


def test_nothing_stays_from_one_token_to_the_next(native_sample: Sample) -> None:
    vocab_size = 3000
    request = make_request(
        u=0.3,
        context=[1, 2, 3, 1, 2],
        repetition_penalty=1.5,
        dry_multiplier=1.0,
        dry_allowed_length=1,
        stages=[(Stage.TEMPERATURE, (0.7,)), (Stage.TYPICAL, (0.9,))],
        vocab_size=vocab_size,
    )
    logits = some_logits(vocab_size)
    first = native_sample(logits, request)
    request.context = np.array([7, 7, 7], dtype=np.int32)
    request.banned_ids = np.array([first.token_id], dtype=np.int32)
    other = native_sample(-logits, request)
    assert_close(other, reference(-logits, request), logits)
    request.context = np.array([1, 2, 3, 1, 2], dtype=np.int32)
    request.banned_ids = np.empty(0, dtype=np.int32)
    assert native_sample(logits, request) == first


def test_a_second_thread_in_a_sampler_is_refused_and_the_first_draws_what_it_draws_alone() -> None:
    logits = some_logits(2**21)
    request = usual_request(u=0.4, top_p=0.9)
    alone = engine.sampling.op.sample(logits, request, work=np.empty_like(logits))
    drawn: list[SampleResult] = []
    refused: list[str] = []
    together = threading.Barrier(2)

    def draw() -> None:
        work = np.empty_like(logits)
        together.wait()
        for _ in range(10):
            try:
                drawn.append(engine.sampling.op.sample(logits, request, work=work))
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) == {"the sampler is in use in another thread"}
    assert drawn
    assert all(result == alone for result in drawn)
