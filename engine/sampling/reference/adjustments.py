"""Adjustments of the logits before they become probabilities, one function each.

Owns the formulas of penalties, bias, DRY and masks. Every function changes `work` (V,), float32, in
place. It computes in float64 and rounds once, so that any implementation gives the same bits.
"""

import numpy as np

from ...text.token_ids import TokenMask, members
from ..logits import Ids, Logits

# The most that DRY subtracts: as good as forbidden, but finite.
LARGEST_DRY_PENALTY = 1e30


def penalize(
    work: Logits,
    context: Ids,
    *,
    n_prompt: int,
    repetition: float,
    frequency: float,
    presence: float,
    range_: int,
    decay: int,
) -> None:
    """Penalties on the tokens of the context.

    The newest `range_` tokens (-1: all) have weight 1. A token d places before the newest, for
    range_ <= d < range_ + decay, has the weight (range_ + decay - d) / decay; older ones have 0.
    With w the weight of a token's newest occurrence, in this order:
    l := l / r if l > 0, else l * r, where r = 1 + (repetition - 1) * w (Keskar et al., arXiv
    1909.05858); l := l - (presence * w + frequency * c), where c sums the weights of its
    occurrences in the completion, newest first, and presence counts only if there is one (OpenAI's
    definition of the two). Range and decay are ExLlamaV2's.
    """
    reach = len(context) if range_ < 0 else min(len(context), range_ + decay)
    recent = context[::-1][:reach]  # newest first
    weights = np.ones(reach)
    if 0 <= range_ < reach:
        weights[range_:] = (range_ + decay - np.arange(range_, reach)) / decay
    n_completion = max(0, min(reach, len(context) - n_prompt))
    counts = np.bincount(recent[:n_completion], weights[:n_completion], minlength=len(work))
    ids, newest = np.unique(recent, return_index=True)
    factor = 1.0 + (repetition - 1.0) * weights[newest]
    present = np.where(newest < n_completion, presence * weights[newest], 0.0)
    seen = work[ids].astype(np.float64)
    seen = np.where(seen > 0, seen / factor, seen * factor) - (present + frequency * counts[ids])
    with np.errstate(over="ignore"):  # `check_adjusted` reports inf and NaN
        work[ids] = seen.astype(np.float32)


def bias(work: Logits, ids: Ids, deltas: Logits) -> None:
    """l := l + delta for unique ids, in float32."""
    with np.errstate(over="ignore", invalid="ignore"):  # `check_adjusted` reports inf and NaN
        work[ids] += deltas


def dry(
    work: Logits,
    context: Ids,
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    range_: int,
    max_ngram: int,
    breakers: TokenMask | None,
) -> None:
    """DRY, "don't repeat yourself" (p-e-w, text-generation-webui pull request 5677).

    If the end of the newest `range_` tokens (0: all) also occurs earlier in them, the token that
    followed it there would prolong a repeat. With L the longest such match before a token, at most
    max_ngram: l := l - multiplier * base^(L - allowed_length) if L >= allowed_length. A match never
    contains a breaker, and a breaker is never penalized.
    """
    if range_ > 0:
        context = context[-range_:]
    breaking = np.zeros(len(work), bool) if breakers is None else members(breakers, len(work))
    if len(context) < 2 or breaking[context[-1]]:
        return
    ends = np.flatnonzero(context[:-1] == context[-1])
    ends = ends[~breaking[context[ends + 1]]]
    lengths = np.zeros(len(work), dtype=np.int64)  # (V,), the longest match before each token
    length = 0
    while ends.size and length < max_ngram:
        length += 1
        lengths[context[ends + 1]] = length
        ends = ends[ends >= length]
        if breaking[context[-1 - length]]:
            break
        ends = ends[context[ends - length] == context[-1 - length]]
    ids = np.flatnonzero(lengths >= max(allowed_length, 1))
    penalties = multiplier * base ** (lengths[ids] - allowed_length).astype(np.float64)
    lowered = work[ids].astype(np.float64) - np.minimum(penalties, LARGEST_DRY_PENALTY)
    work[ids] = lowered.astype(np.float32)


def mask(work: Logits, allowed: TokenMask) -> None:
    work[~members(allowed, len(work))] = -np.inf


def ban(work: Logits, ids: Ids) -> None:
    work[ids] = -np.inf
