"""The sampler op in plain numpy: it runs if native code is missing, and is the tests' oracle.

Owns the meaning of the op: the order of the steps, the draw, what is reported. The formulas of the
steps are in `adjustments.py` and `stages.py`. V is the size of the vocabulary.
"""

import math

import numpy as np

from ..logits import Ids, Logits
from ..request import SampleRequest, SampleResult, Stage
from . import adjustments as adjust
from . import stages
from .checks import check_adjusted, check_any_left, check_finite
from .pipeline import Candidates, Trace, run_stages
from .stages import Wide


def sample(logits: Logits, request: SampleRequest, *, work: Logits) -> SampleResult:
    """Draw one token from `logits` (V,), which stay untouched; `work` (V,) receives the adjusted
    ones.

    Order: penalties, bias, DRY, mask, banned ids; then the stages as the request orders them, each
    on what the one before it left, with probabilities renormalised; then the inverse of the
    cumulative distribution at `u` over the candidates in descending probability (ties: lower id
    first). Greedy takes the largest adjusted logit (ties: lowest id) with probability 1. Raises
    NumericsError if `logits` contain NaN or +inf, or nothing finite; InvalidInputError if only
    penalties and biases cause that; NoTokenError if these, mask or bans leave no token.
    """
    check_finite(logits)
    trace = Trace(int(logits.argmax()))
    _adjust(logits, request, work, trace)
    raw = Raw(logits)
    kept_mass = 1.0
    if request.greedy:
        ids, p = np.array([work.argmax()], dtype=np.int32), np.ones(1)
        token_id, p_sampled = int(ids[0]), 1.0
    else:
        before = _candidates(work)
        after = run_stages(before, request, trace)
        if trace.removed_by_stages:
            kept_mass = float(_kept_mass(before, after))
        ids, p, index = _draw(after, request)
        token_id, p_sampled = int(ids[index]), float(p[index])
    top_ids = _top_ids(logits, request.n_top)
    sampled = dict(zip(ids.tolist(), p.tolist(), strict=True)) if top_ids else {}
    logprob_raw = raw.logprob(token_id)
    return SampleResult(
        token_id=token_id,
        p_raw=math.exp(logprob_raw),
        p_sampled=p_sampled,
        logprob_raw=logprob_raw,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple(raw.logprob(i) for i in top_ids),
        top_p_sampled=tuple(sampled.get(i, 0.0) for i in top_ids),
        rank=raw.rank(token_id),
        entropy=raw.entropy(),
        margin=raw.margin(),
        kept_mass=kept_mass,
        trace=tuple(trace.steps) if request.want_trace else (),
    )


def score(logits: Logits, token_id: int, *, n_top: int) -> SampleResult:
    """What `logits` (V,) say about a token that was not drawn from them; p_sampled is p_raw."""
    check_finite(logits)
    raw = Raw(logits)
    top_ids = _top_ids(logits, n_top)
    top_logprobs = [raw.logprob(i) for i in top_ids]
    logprob = raw.logprob(token_id)
    return SampleResult(
        token_id=token_id,
        p_raw=math.exp(logprob),
        p_sampled=math.exp(logprob),
        logprob_raw=logprob,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple(top_logprobs),
        top_p_sampled=tuple(map(math.exp, top_logprobs)),
        rank=raw.rank(token_id),
        entropy=raw.entropy(),
        margin=raw.margin(),
        kept_mass=1.0,
        trace=(),
    )


class Raw:
    """The distribution of the untouched logits."""

    def __init__(self, logits: Logits) -> None:
        self._logits = logits.astype(np.float64)
        self._largest = self._logits.max()
        self._log_total = math.log(np.exp(self._logits - self._largest).sum())

    def logprob(self, token_id: int) -> float:
        return float(self._logits[token_id] - self._largest - self._log_total)

    def rank(self, token_id: int) -> int:
        logit = self._logits[token_id]
        earlier = (self._logits[:token_id] == logit).sum()
        return int((self._logits > logit).sum() + earlier)

    def entropy(self) -> float:
        logprobs = self._logits[self._logits > -np.inf] - self._largest - self._log_total
        return float(-(np.exp(logprobs) * logprobs).sum())

    def margin(self) -> float:
        if len(self._logits) == 1:
            return 1.0
        second, first = np.exp(np.partition(self._logits, -2)[-2:] - self._largest)
        return float((first - second) * math.exp(-self._log_total))


def _adjust(logits: Logits, request: SampleRequest, work: Logits, trace: Trace) -> None:
    work[:] = logits
    before = work.copy()

    def done(stage: Stage) -> None:
        trace.adjusted(stage, before, work)
        before[:] = work

    has_penalties = (
        request.repetition_penalty != 1.0 or request.frequency_penalty or request.presence_penalty
    )
    if has_penalties or request.dry_multiplier:
        _check_ids("context", request.context, len(work))
    _check_ids("bias_ids", request.bias_ids, len(work))
    _check_ids("banned_ids", request.banned_ids, len(work))
    if has_penalties:
        adjust.penalize(
            work,
            request.context,
            n_prompt=request.n_prompt,
            repetition=request.repetition_penalty,
            frequency=request.frequency_penalty,
            presence=request.presence_penalty,
            range_=request.repetition_range,
            decay=request.repetition_decay,
        )
        done(Stage.PENALTIES)
    if request.bias_ids.size:
        adjust.bias(work, request.bias_ids, request.bias_deltas)
        done(Stage.BIAS)
    if request.dry_multiplier:
        adjust.dry(
            work,
            request.context,
            multiplier=request.dry_multiplier,
            base=request.dry_base,
            allowed_length=request.dry_allowed_length,
            range_=request.dry_range,
            max_ngram=request.dry_max_ngram,
            breakers=request.dry_breakers,
        )
        done(Stage.DRY)
    check_adjusted(work, request)
    if request.mask is not None:
        adjust.mask(work, request.mask)
        done(Stage.MASK)
    if request.banned_ids.size:
        adjust.ban(work, request.banned_ids)
        done(Stage.BANNED)
    check_any_left(work, request)


def _check_ids(name: str, ids: Ids, vocab_size: int) -> None:
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.size:
        raise ValueError(f"{name}: token {wrong[0]}, allowed: 0 to {vocab_size - 1}")


def _candidates(work: Logits) -> Candidates:
    """All tokens with a finite logit."""
    ids = _largest(work, len(work))
    ids = ids[work[ids] > -np.inf]
    wide = work[ids].astype(np.float64)
    return Candidates(ids, wide - wide[0])


def _top_ids(logits: Logits, n: int) -> list[int]:
    """Ids of the finite ones among the n largest logits."""
    return [i for i in _largest(logits, n).tolist() if logits[i] > -np.inf]


def _largest(logits: Logits, n: int) -> Ids:
    """Ids of the n largest logits, descending, the lower id first among equals."""
    if n <= 0:
        return np.empty(0, dtype=np.int32)
    nth = logits.size - min(n, logits.size)
    threshold = np.partition(logits, nth)[nth]
    ids = np.flatnonzero(logits >= threshold)  # ascending, so that a stable sort orders the ties
    return ids[np.argsort(-logits[ids], kind="stable")[:n]].astype(np.int32)


def _kept_mass(before: Candidates, after: Candidates) -> float:
    p = stages.probabilities(before.nats)
    return float(p[np.isin(before.ids, after.ids)].sum())


def _draw(candidates: Candidates, request: SampleRequest) -> tuple[Ids, Wide, int]:
    """(ids, the probability of drawing each, the index of the drawn one)."""
    p = stages.probabilities(candidates.nats)
    cumulative = p.cumsum()
    cumulative /= cumulative[-1]
    if request.skew:
        cumulative = stages.skew(cumulative, request.skew)
        p = np.diff(cumulative, prepend=0.0)
    index = int(np.searchsorted(cumulative, request.u, side="right"))
    return candidates.ids, p, min(index, len(p) - 1)
