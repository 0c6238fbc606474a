"""Requests to the sampler op from plain Python values, and the comparison of a sampler with the
reference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from engine import InvalidInputError, NumericsError
from engine.sampling.logits import Logits
from engine.sampling.reference import op as sample_ref
from engine.sampling.request import N_PARAMETERS, SampleRequest, SampleResult, Stage
from engine.text.token_ids import set_of_ids

Sample = Callable[[Logits, SampleRequest], SampleResult]
Stages = Sequence[tuple[Stage, Sequence[float]]]


def floats(values: npt.ArrayLike) -> Logits:
    return np.array(values, dtype=np.float32)


def some_logits(vocab_size: int, *, scale: float = 3.0, seed: int | None = None) -> Logits:
    generator = np.random.default_rng(vocab_size if seed is None else seed)
    return floats(generator.standard_normal(vocab_size) * scale)


def make_request(
    *,
    u: float = 0.0,
    stages: Stages = (),
    context: Sequence[int] = (),
    biases: Mapping[int, float] | None = None,
    banned: Sequence[int] = (),
    allowed: Iterable[int] | None = None,
    breakers: Iterable[int] | None = None,
    protected: Iterable[int] | None = None,
    vocab_size: int = 0,
    **values: Any,
) -> SampleRequest:
    """The sets of token ids need `vocab_size`."""
    sets = {"mask": allowed, "dry_breakers": breakers, "xtc_protected": protected}
    for name, ids in sets.items():
        if ids is not None:
            values[name] = set_of_ids(ids, vocab_size)
    biases = biases or {}
    padded = [[*given, 0.0, 0.0, 0.0][:N_PARAMETERS] for _, given in stages]
    return SampleRequest(
        u=u,
        context=np.array(context, dtype=np.int32),
        bias_ids=np.array(list(biases), dtype=np.int32),
        bias_deltas=floats(list(biases.values())),
        banned_ids=np.array(banned, dtype=np.int32),
        stages=np.array([stage for stage, _ in stages], dtype=np.int32),
        parameters=np.array(padded, dtype=np.float64).reshape(-1, N_PARAMETERS),
        **values,
    )


def usual_request(
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    **values: Any,
) -> SampleRequest:
    """The usual stages that are on, in their usual order."""
    wanted = (
        (Stage.TEMPERATURE, temperature, 1.0),
        (Stage.TOP_K, float(top_k), 0.0),
        (Stage.TOP_P, top_p, 1.0),
        (Stage.MIN_P, min_p, 0.0),
    )
    stages = [(stage, (value,)) for stage, value, off in wanted if value != off]
    greedy = temperature == 0
    return make_request(greedy=greedy, stages=[] if greedy else stages, **values)


# The draw may hit the neighbour if u is this close to a boundary, and a filter may keep one token
# more at its threshold: sums of masses are right to some 1e-7.
SHARE_ERROR = 1e-6

# Whole numbers make ties; -inf is what a mask leaves.
LOGITS = st.lists(
    st.one_of(st.just(-np.inf), st.integers(-9, 9).map(float), st.floats(-30, 30, width=32)),
    min_size=1,
    max_size=300,
)


def assert_close(native: SampleResult, wanted: SampleResult, logits: Logits) -> None:
    assert native.token_id == wanted.token_id
    assert (native.rank, native.top_ids) == (wanted.rank, wanted.top_ids)
    assert native.trace == wanted.trace
    for name in ("p_raw", "p_sampled", "kept_mass", "top_p_sampled"):
        assert getattr(native, name) == pytest.approx(getattr(wanted, name), rel=1e-6), name
    assert native.margin == pytest.approx(wanted.margin, abs=1e-6)
    assert native.logprob_raw == pytest.approx(wanted.logprob_raw, abs=1e-6)
    assert native.top_logprobs_raw == pytest.approx(wanted.top_logprobs_raw, abs=1e-6)
    # A mean of logits is as exact as the largest of them.
    largest = float(np.abs(logits[np.isfinite(logits)]).max())
    assert native.entropy == pytest.approx(wanted.entropy, abs=1e-6 * (1 + largest))


def outcome(run: Sample, logits: Logits, request: SampleRequest) -> SampleResult | str:
    try:
        with np.errstate(all="ignore"):
            return run(logits, request)
    except (InvalidInputError, NumericsError) as error:
        return str(error)


def reference(logits: Logits, request: SampleRequest) -> SampleResult:
    return sample_ref.sample(logits, request, work=np.empty_like(logits))


def is_robust(logits: Logits, request: SampleRequest, wanted: SampleResult | str) -> bool:
    """Whether the reference says the same for another u, or another top_p, nearby."""
    if isinstance(wanted, str):
        return True
    is_top_p = (request.stages == Stage.TOP_P)[:, None] * (np.arange(N_PARAMETERS) == 0)
    for step in (-SHARE_ERROR, SHARE_ERROR):
        for nearby in (
            replace(request, u=max(request.u + step, 0.0)),
            replace(request, parameters=request.parameters + step * is_top_p),
        ):
            other = outcome(reference, logits, nearby)
            if not isinstance(other, SampleResult) or other.token_id != wanted.token_id:
                return False
            if other.kept_mass != wanted.kept_mass:
                return False
    return True
