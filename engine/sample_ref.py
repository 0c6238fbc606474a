"""The sampler op in plain numpy: what runs without native code, and the oracle of the tests.

Owns the meaning of the op. V is the size of the vocabulary.
"""

import math

import numpy as np
import numpy.typing as npt

from .sample import ADJUSTED_LOGITS, RAW_LOGITS, Logits, SampleRequest, SampleResult, check_finite

# A token this many nats below the best one (after temperature) has no mass: exp(-700) is still a
# normal double, so the native sampler and this one agree on which tokens are candidates.
LOWEST_EXPONENT = -700.0

_FIRST_SELECTION = 1024

Wide = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def sample(logits: Logits, request: SampleRequest, *, work: Logits) -> SampleResult:
    """Draw one token from `logits` (V,), which stay untouched; `work` (V,) receives the adjusted
    ones.

    Order: repetition penalty, deltas, temperature, softmax, top_k, top_p, min_p, then the inverse
    of the cumulative distribution at `u` over the kept tokens in descending probability (ties:
    lower id first). Each filter sees probabilities renormalised over what the one before kept;
    top_p keeps the token that crosses it; min_p is relative to the largest probability. Greedy
    (temperature 0) takes the largest adjusted logit (ties: lowest id) with probability 1. Raises
    NumericsError for NaN or +inf, and when no token has a finite logit before or after the
    adjustments.
    """
    check_finite(logits, RAW_LOGITS)
    _adjust(logits, request, work)
    check_finite(work, ADJUSTED_LOGITS)
    raw = logits.astype(np.float64)
    log_total = raw.max() + math.log(np.exp(raw - raw.max()).sum())
    top_ids = [i for i in _largest(logits, request.n_top).tolist() if logits[i] > -np.inf]
    if request.temperature == 0:
        token_id = int(work.argmax())
        top_p_sampled = [float(i == token_id) for i in top_ids]
        p_sampled = 1.0
    else:
        token_id, mass, kept_mass, last = _draw(work, request)
        top_p_sampled = [
            float(mass[i] / kept_mass) if _at_or_before(work, i, last) else 0.0 for i in top_ids
        ]
        p_sampled = float(mass[token_id] / kept_mass)
    logprob_raw = float(raw[token_id] - log_total)
    return SampleResult(
        token_id=token_id,
        p_raw=math.exp(logprob_raw),
        p_sampled=p_sampled,
        logprob_raw=logprob_raw,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple((raw[top_ids] - log_total).tolist()),
        top_p_sampled=tuple(top_p_sampled),
    )


def _adjust(logits: Logits, request: SampleRequest, work: Logits) -> None:
    work[:] = logits
    seen = work[request.repetition_ids]
    penalty = np.float32(request.repetition_penalty)
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is told afterwards
        work[request.repetition_ids] = np.where(seen > 0, seen / penalty, seen * penalty)
        work[request.delta_ids] += request.deltas


def _largest(logits: Logits, n: int) -> Ids:
    """Ids of the n largest logits, descending, the lower id first among equals; no sort of the
    whole vocabulary.
    """
    if n <= 0:
        return np.empty(0, dtype=np.int64)
    nth = logits.size - min(n, logits.size)
    threshold = np.partition(logits, nth)[nth]
    ids = np.flatnonzero(logits >= threshold)  # ascending, so that a stable sort orders the ties
    return ids[np.argsort(-logits[ids], kind="stable")[:n]]


def _at_or_before(logits: Logits, token_id: int, last: int) -> bool:
    """Whether a token comes no later than `last` in the descending order (lower id first among
    equals).
    """
    value, bound = logits[token_id], logits[last]
    return bool(value > bound or (value == bound and token_id <= last))


def _draw(work: Logits, request: SampleRequest) -> tuple[int, Wide, float, int]:
    """(token, mass of every token, mass kept, last kept token); masses are relative to the most
    likely token's.
    """
    wide = work.astype(np.float64)
    with np.errstate(over="ignore"):  # -inf is what it should be
        exponent = (wide - wide.max()) / request.temperature
    mass = np.where(exponent > LOWEST_EXPONENT, np.exp(exponent), 0.0)  # (V,)
    total = float(mass.sum())
    n_candidates = int((mass > 0).sum())
    limit = min(request.top_k or n_candidates, n_candidates)
    ids, cumulative = _prefix(work, mass, total, limit, request)
    kept = ids.size
    if request.top_p < 1:
        base = cumulative[limit - 1] if limit < n_candidates else total
        kept = min(kept, int(np.searchsorted(cumulative, request.top_p * base)) + 1)
    if request.min_p > 0:
        kept = min(kept, int((mass[ids] >= request.min_p).sum()))
    if request.top_k or request.top_p < 1 or request.min_p > 0:
        kept_mass, last = float(cumulative[kept - 1]), int(ids[kept - 1])
    else:
        kept_mass, last = total, _last_candidate(work, mass)
    index = int(np.searchsorted(cumulative[:kept], request.u * kept_mass, side="right"))
    return int(ids[min(index, kept - 1)]), mass, kept_mass, last


def _prefix(
    work: Logits, mass: Wide, total: float, limit: int, request: SampleRequest
) -> tuple[Ids, Wide]:
    """The start of the descending order, long enough for every filter and the draw: (ids,
    cumulative mass).
    """
    n = limit if request.top_k else min(limit, _FIRST_SELECTION)
    goal = (request.top_p if request.top_p < 1 else request.u) * total
    while True:
        ids = _largest(work, n)
        cumulative = mass[ids].cumsum()
        if n == limit or mass[ids[-1]] < request.min_p:
            return ids, cumulative
        if cumulative[-1] > goal and (request.top_p < 1 or request.min_p == 0):
            return ids, cumulative
        n = min(limit, 8 * n)


def _last_candidate(work: Logits, mass: Wide) -> int:
    """The last token of the descending order that has any mass."""
    lowest = np.where(mass > 0, work, np.inf).min()
    return int(np.flatnonzero(work == lowest)[-1])
