"""Requests to the sampler op from plain Python values, and the op on every instruction set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.sample import N_PARAMETERS, Logits, SampleRequest, SampleResult, Stage
from engine.token_ids import set_of_ids

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
    """`vocab_size` is needed for the sets."""
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
    """The stages that everybody knows, where they are on, in their usual order."""
    wanted = (
        (Stage.TEMPERATURE, temperature, 1.0),
        (Stage.TOP_K, float(top_k), 0.0),
        (Stage.TOP_P, top_p, 1.0),
        (Stage.MIN_P, min_p, 0.0),
    )
    stages = [(stage, (value,)) for stage, value, off in wanted if value != off]
    greedy = temperature == 0
    return make_request(greedy=greedy, stages=[] if greedy else stages, **values)
