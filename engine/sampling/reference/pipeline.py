"""Runs the stages in the order of a request, and records what they remove.

Owns the candidates on their way from the adjusted logits to the draw, and the trace. The formulas
are in `stages.py`.
"""

from typing import NamedTuple

import numpy as np

from ...text.token_ids import members
from ..logits import Ids, Logits
from ..request import SampleRequest, Stage, TraceStep
from . import stages
from .stages import Kept, Wide

# A candidate this many nats below the best has no mass. exp(-700) is still a normal double, so the
# native sampler and this one agree on which tokens are candidates.
LOWEST_NATS = -700.0

# They work on logits, or on temperatures, so candidates without mass still count.
_BEFORE_SOFTMAX = (Stage.SMOOTHING, Stage.TEMPERATURE, Stage.TOP_N_SIGMA)


class Candidates(NamedTuple):
    """Descending by adjusted logit, the lower id first among equals."""

    ids: Ids  # (n,)
    nats: Wide  # (n,), relative to the first

    def keep(self, kept: Kept) -> "Candidates":
        nats = self.nats[kept]
        return Candidates(self.ids[kept], nats - nats[0])


class Trace:
    """What every step removed."""

    def __init__(self, argmax: int) -> None:
        """`argmax`: the most likely token of the raw logits."""
        self._argmax = argmax
        self.steps: list[TraceStep] = []
        self.removed_by_stages = 0

    def adjusted(self, stage: Stage, before: Logits, after: Logits) -> None:
        removed = np.isfinite(before) & (after == -np.inf)
        self._add(stage, int(removed.sum()), bool(removed[self._argmax]))

    def filtered(self, stage: Stage, before: Candidates, after: Candidates) -> None:
        n_removed = len(before.ids) - len(after.ids)
        gone = self._argmax in before.ids and self._argmax not in after.ids
        self.removed_by_stages += n_removed
        self._add(stage, n_removed, gone)

    def _add(self, stage: Stage, n_removed: int, removed_argmax: bool) -> None:
        self.steps.append(TraceStep(stage.name.lower(), n_removed, removed_argmax))


def run_stages(candidates: Candidates, request: SampleRequest, trace: Trace) -> Candidates:
    for code, parameters in zip(request.stages.tolist(), request.parameters.tolist(), strict=True):
        stage = Stage(code)
        before = candidates if stage in _BEFORE_SOFTMAX else _with_mass(candidates)
        candidates = _run_stage(stage, before, parameters, request)
        trace.filtered(stage, before, candidates)
    return _with_mass(candidates)


def _run_stage(
    stage: Stage, candidates: Candidates, parameters: list[float], request: SampleRequest
) -> Candidates:
    first, second, third = parameters
    ids, nats = candidates
    match stage:
        case Stage.SMOOTHING:
            return Candidates(ids, stages.smoothing(nats, first))
        case Stage.TEMPERATURE:
            return Candidates(ids, stages.temperature(nats, first))
        case Stage.DYNAMIC_TEMPERATURE:
            return Candidates(ids, stages.dynamic_temperature(nats, first, second, third))
        case Stage.TOP_N_SIGMA:
            return candidates.keep(stages.top_n_sigma(nats, first))
    p = stages.probabilities(nats)
    match stage:
        case Stage.TOP_K:
            kept = stages.top_k(p, int(first))
        case Stage.TOP_P:
            kept = stages.top_p(p, first)
        case Stage.TOP_A:
            kept = stages.top_a(p, first)
        case Stage.MIN_P:
            kept = stages.min_p(p, first)
        case Stage.TFS:
            kept = stages.tail_free(p, first)
        case Stage.TYPICAL:
            kept = stages.typical(p, first)
        case Stage.MIROSTAT:
            kept = stages.mirostat(p, request.mirostat_mu)
        case Stage.XTC:
            protected = _protected(ids, request)
            kept = stages.xtc(p, first, second, protected, request.u_xtc)
        case _:
            raise ValueError(f"stages: {stage.name} is not a stage")
    return candidates.keep(kept)


def _protected(ids: Ids, request: SampleRequest) -> Kept:
    if request.xtc_protected is None:
        return np.zeros(len(ids), dtype=bool)
    kept: Kept = members(request.xtc_protected, 32 * len(request.xtc_protected))[ids]
    return kept


def _with_mass(candidates: Candidates) -> Candidates:
    has_mass = candidates.nats > LOWEST_NATS
    return Candidates(candidates.ids[has_mass], candidates.nats[has_mass])
