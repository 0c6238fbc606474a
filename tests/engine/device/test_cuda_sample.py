"""The sampler of a CUDA device, run by the emulator, against the reference: every request that it
can do, what it keeps from one token to the next, and what it says when it cannot.
"""

import gc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.device.cuda.sampler import DeviceSampler, supports
from engine.sampling.logits import Logits
from engine.sampling.request import SampleRequest, SampleResult, Stage
from tests.support.cuda_module import cuda, device_of, guarded, step_state
from tests.support.sample_requests import (
    LOGITS,
    assert_close,
    floats,
    is_robust,
    make_request,
    outcome,
    reference,
    some_logits,
    usual_request,
)

__all__ = ["cuda"]

pytestmark = pytest.mark.timeout(600)

MAX_CONTEXT = 100

PARAMETERS: dict[Stage, list[tuple[float]]] = {
    Stage.TEMPERATURE: [(0.06,), (0.3,), (1.7,), (40.0,)],
    Stage.TOP_K: [(1.0,), (7.0,), (1000.0,)],
    Stage.TOP_P: [(0.0,), (0.35,), (0.93,)],
    Stage.MIN_P: [(0.013,), (0.41,), (1.0,)],
}

NewSampler = Callable[[int], DeviceSampler]


@pytest.fixture
def new_sampler(cuda: ModuleType) -> NewSampler:
    return lambda vocab_size: DeviceSampler(
        cuda, vocab_size, max_context=MAX_CONTEXT, device=device_of(cuda)
    )


def row_of(cuda: ModuleType, logits: Logits) -> torch.Tensor:
    """Logits where the kernels of `cuda` run."""
    return torch.from_numpy(logits).to(device_of(cuda))


def device_sample(
    sampler: DeviceSampler, logits: Logits, request: SampleRequest, state: int | None = None
) -> SampleResult:
    assert sampler.supports(request)
    sampler.begin(torch.from_numpy(logits).to(sampler.device), request, state=state)
    return sampler.result()


@st.composite
def requests(draw: st.DrawFn, vocab_size: int) -> SampleRequest:
    ids = st.integers(0, vocab_size - 1)
    stages = draw(st.lists(st.sampled_from(list(PARAMETERS)), unique=True))
    values: dict[str, Any] = {
        "u": draw(st.floats(0, 0.999)),
        "greedy": draw(st.integers(0, 9)) == 0,
        "n_top": draw(st.sampled_from([0, 1, 12, 64])),
        "stages": [(stage, draw(st.sampled_from(PARAMETERS[stage]))) for stage in stages],
        "context": (context := draw(st.lists(ids, max_size=60))),
        "n_prompt": draw(st.integers(0, len(context))),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.0, 1.2, 0.8])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.3, -0.4])),
        "presence_penalty": draw(st.sampled_from([0.0, 0.6])),
        "repetition_range": draw(st.sampled_from([-1, 0, 5, 1000])),
        "biases": draw(st.dictionaries(ids, st.sampled_from([-np.inf, -2.0, 1.5]), max_size=4)),
        "banned": draw(st.lists(ids, max_size=3)),
    }
    if draw(st.integers(0, 2)) == 0:
        values["allowed"] = draw(st.sets(ids))
    return make_request(vocab_size=vocab_size, **values)


@given(data=st.data(), values=LOGITS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_equals_the_reference(
    new_sampler: NewSampler, data: st.DataObject, values: list[float]
) -> None:
    logits = floats(values)
    assume(bool(np.isfinite(logits).any()))
    request = data.draw(requests(len(values)))
    wanted = outcome(reference, logits, request)
    assume(is_robust(logits, request, wanted))
    sampler = new_sampler(len(values))
    got = outcome(lambda row, req: device_sample(sampler, row, req), logits, request)
    if isinstance(wanted, str) or isinstance(got, str):
        assert got == wanted
    else:
        assert_close(got, wanted, logits)


FILTERS = (Stage.TOP_K, (700.0,)), (Stage.TOP_P, (0.9,)), (Stage.MIN_P, (0.02,))
STAGES = {
    "none": (),
    "temperature first": ((Stage.TEMPERATURE, (0.7,)), *FILTERS),
    "temperature last": (*reversed(FILTERS), (Stage.TEMPERATURE, (1.6,))),
    "hot": ((Stage.TEMPERATURE, (40.0,)),),
}


@pytest.mark.parametrize("vocab_size", [1, 31, 33, 127, 1000, 5000, 33_000])
@pytest.mark.parametrize("is_adjusted", [False, True], ids=["raw", "adjusted"])
def test_equals_the_reference_at_every_size(
    new_sampler: NewSampler, vocab_size: int, is_adjusted: bool
) -> None:
    logits = some_logits(vocab_size)
    logits[vocab_size // 3 : vocab_size // 3 + 2] = -np.inf if vocab_size > 3 else 0.0
    sampler = new_sampler(vocab_size)
    adjusted: dict[str, Any] = {
        "context": [i % vocab_size for i in (3, 5, 3, 8, 3)],
        "n_prompt": 2,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "biases": {0: 4.0},
        "banned": [vocab_size // 2],
        "allowed": range(0, vocab_size, 3),
    }
    for stages in list(STAGES.values())[: 2 if vocab_size > 10_000 else None]:
        values = adjusted if is_adjusted else {}
        request = make_request(u=0.83, n_top=40, stages=stages, vocab_size=vocab_size, **values)
        if vocab_size == 1 and is_adjusted:
            request.banned_ids = request.banned_ids[:0]
        row = guarded(torch.from_numpy(logits)).numpy()
        assert_close(device_sample(sampler, row, request), reference(logits, request), logits)


@pytest.mark.parametrize("spacing", [0.0, 1e-6, 1e-38])
def test_equals_draw_in_the_order_of_their_ids(new_sampler: NewSampler, spacing: float) -> None:
    """More tokens are equal, or nearly, than are compared one by one."""
    vocab_size = 5000
    logits = np.float32(spacing) * floats(np.arange(vocab_size) // 700)
    sampler = new_sampler(vocab_size)
    for request in (
        usual_request(u=0.30005, n_top=3),
        usual_request(temperature=0, n_top=64),
        usual_request(u=0.99, top_k=1500, top_p=0.5001),
        usual_request(u=0.40005, top_k=3000, temperature=0.5),
    ):
        got = device_sample(sampler, logits, request)
        assert_close(got, reference(logits, request), logits)


@pytest.mark.parametrize("scale", [0.0, 0.5, 12.0])
@pytest.mark.parametrize("shift", [0.0, -700.0, 1e6])
def test_the_sums_are_precise(new_sampler: NewSampler, scale: float, shift: float) -> None:
    logits = some_logits(3000, scale=scale) + np.float32(shift)
    sampler = new_sampler(logits.size)
    wide = logits.astype(np.float64)
    for temperature in (0.01, 0.7, 1.0, 40.0):
        result = device_sample(sampler, logits, usual_request(temperature=temperature, u=0.5))
        exponents = (wide - wide.max()) / temperature
        p = np.exp(exponents) / np.exp(exponents).sum()
        assert result.p_sampled == pytest.approx(p[result.token_id], rel=3e-7)
    logprobs = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    assert result.logprob_raw == pytest.approx(logprobs[result.token_id], abs=3e-7)
    assert result.entropy == pytest.approx(-(np.exp(logprobs) * logprobs).sum(), abs=1e-6)


def test_the_order_of_threads_changes_no_bit(
    new_sampler: NewSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = np.round(some_logits(9000), 1)  # with ties
    request = usual_request(temperature=0.8, top_p=0.9, u=0.71, n_top=20, biases={5: 1.0})
    sampler = new_sampler(logits.size)
    results = set()
    for seed in range(4):
        monkeypatch.setenv("SOLITON_CUDA_EMULATOR_SEED", str(seed))
        results.add(device_sample(sampler, logits, request))
    assert len(results) == 1


def test_only_what_is_new_of_a_context_has_to_come(new_sampler: NewSampler) -> None:
    """Tokens are appended, taken back and replaced; masks and bans come and go."""
    vocab_size = 200
    logits = some_logits(vocab_size)
    sampler = new_sampler(vocab_size)
    request = make_request(u=0.6, n_prompt=2, repetition_penalty=1.9, frequency_penalty=1.1)
    best = np.argsort(-logits)[:6].astype(np.int32)
    mask = np.full(7, 0x55555555, dtype=np.int32)
    for context, allowed, banned in (
        (best[:2], None, best[:0]),
        (best[:5], mask, best[:1]),
        (best[:3], None, best[3:5]),
        (best[[0, 1, 2, 5, 5, 5]], ~mask, best[:0]),
        (best[:0], None, best[:0]),
        (best, mask, best[2:4]),
    ):
        request.context, request.mask, request.banned_ids = context, allowed, banned
        assert_close(device_sample(sampler, logits, request), reference(logits, request), logits)


@pytest.mark.parametrize("biases", [{}, {2: -1.0}], ids=["raw", "adjusted"])
def test_the_next_pass_finds_the_token(
    cuda: ModuleType, new_sampler: NewSampler, biases: dict[int, float]
) -> None:
    state = step_state(cuda, 6, [1, 2, 3])
    logits = some_logits(300)
    request = usual_request(temperature=0.7, u=0.9, biases=biases)
    result = device_sample(new_sampler(300), logits, request, state.data_ptr())
    assert state[:2].tolist() == [7, 1]
    assert state[8:12].tolist() == [result.token_id, 2, 3, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"logits": {2100: np.nan}},
        {"logits": {3: np.inf}},
        {"logits": slice(None)},
        {"biases": {7: np.inf}},
        {"biases": dict.fromkeys(range(2500), -np.inf)},
        {"allowed": []},
        {"allowed": [4], "banned": [4]},
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_said_as_on_the_cpu(
    cuda: ModuleType, new_sampler: NewSampler, change: dict[str, Any]
) -> None:
    logits = some_logits(2500)
    odd = change.pop("logits", {})
    if isinstance(odd, slice):
        logits[odd] = -np.inf
    else:
        for token_id, logit in odd.items():
            logits[token_id] = logit
    request = make_request(u=0.5, vocab_size=2500, **change)
    wanted = outcome(reference, logits, request)
    assert isinstance(wanted, str)
    state = step_state(cuda, 6, [1, 2, 3])
    before = state.clone()
    sampler = new_sampler(2500)
    row = row_of(cuda, logits.copy())
    sampler.begin(row, request, state=state.data_ptr())
    row.fill_(1.0)  # the next pass overwrites it
    assert outcome(lambda *_: sampler.result(), logits, request) == wanted
    assert torch.equal(state, before)
    # It goes on with other logits.
    logits = some_logits(2500)
    request = usual_request(u=0.5)
    assert_close(device_sample(sampler, logits, request), reference(logits, request), logits)


@pytest.mark.parametrize(
    "values",
    [
        {"stages": [(Stage.TYPICAL, (0.9,))]},
        {"stages": [(Stage.TOP_K, (5.0,)), (Stage.TEMPERATURE, (0.01,))]},
        {"want_trace": True},
        {"n_top": 65},
        {"skew": 0.3},
        {"dry_multiplier": 0.8, "context": [1, 2, 1]},
        {"context": [1, 2, 3], "presence_penalty": 1.0, "repetition_range": 1}
        | {"repetition_decay": 2},
    ],
    ids=str,
)
def test_other_requests_are_drawn_on_the_host(
    cuda: ModuleType, new_sampler: NewSampler, values: dict[str, Any]
) -> None:
    logits = some_logits(300)
    request = make_request(u=0.5, **values)
    assert not supports(request)
    sampler = new_sampler(300)
    row = row_of(cuda, logits)
    assert not sampler.begin(row, request, state=16), "no state is at that address"
    assert_close(sampler.result(), reference(logits, request), logits)


def test_arguments_that_do_not_fit_are_told(cuda: ModuleType, new_sampler: NewSampler) -> None:
    sampler = new_sampler(300)
    logits = some_logits(300)
    row = row_of(cuda, logits)
    for wrong in (row[:299], row.double(), row.reshape(3, 100), row.repeat(2)[::2]):
        with pytest.raises(ValueError, match="row: expected contiguous float32 \\(300,\\)"):
            sampler.begin(wrong, usual_request())
    request = usual_request(presence_penalty=1.0)
    for name, ids in (("context", [5, 300]), ("banned_ids", [-1])):
        setattr(request, name, np.array(ids, dtype=np.int32))
        sampler.begin(row, request)
        with pytest.raises(ValueError, match=f"{name}: token {ids[-1]}, allowed: 0 to 299"):
            sampler.result()
        setattr(request, name, np.empty(0, dtype=np.int32))
    # More than fits: then the host draws.
    request.context = np.arange(MAX_CONTEXT + 1, dtype=np.int32)
    sampler.begin(row, request)
    assert_close(sampler.result(), reference(logits, request), logits)


def test_a_sampler_keeps_its_memory_until_it_ends(cuda: ModuleType) -> None:
    device = device_of(cuda)
    memory = torch.empty(cuda.sampler_bytes(300, 10), dtype=torch.uint8, device=device)
    report = torch.zeros(cuda.report_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    kept = weakref.ref(memory)
    native = cuda.Sampler(300, 10, memory.data_ptr(), report.data_ptr(), (memory, report))
    del memory, report
    gc.collect()
    assert kept() is not None
    del native
    gc.collect()
    assert kept() is None
