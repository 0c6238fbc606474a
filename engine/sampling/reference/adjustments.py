"""What is done to the logits before they become probabilities, one function each.

Owns the formulas of penalties, bias, DRY and masks. Every function changes `work` (V,), float32, in
place: computed in float64 and rounded once, so that any implementation gives the same bits.
"""

import numpy as np

from ...text.token_ids import TokenMask, members
from ..logits import Ids, Logits

# What DRY takes from a logit at most: as good as forbidden, but a number.
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
    """Penalties of the tokens of the context, float64 until the end.

    The newest `range_` tokens (-1: all) count fully, a token d places before the newest, for
    range_ <= d < range_ + decay, with the weight (range_ + decay - d) / decay, others not at all.
    With w the weight of a token's newest occurrence, in this order:
    l := l / r if l > 0, else l * r, where r = 1 + (repetition - 1) * w (Keskar et al., arXiv
    1909.05858); l := l - (presence * w + frequency * c), where c sums the weights of its
    occurrences in the completion, newest first, and presence counts if there is one (OpenAI's
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
    with np.errstate(over="ignore"):  # what is no number is told afterwards
        work[ids] = seen.astype(np.float32)


def bias(work: Logits, ids: Ids, deltas: Logits) -> None:
    """l := l + delta for unique ids, in float32."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is told afterwards
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

    Where the end of the newest `range_` tokens (0: all) also stands earlier in them, the token
    behind it would prolong a repeat. With L, at most max_ngram, the longest such match before a
    token: l := l - multiplier * base^(L - allowed_length) if L >= allowed_length. A match never
    holds a breaker, and a breaker is never penalized.
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
    """Removes what is not allowed."""
    work[~members(allowed, len(work))] = -np.inf


def ban(work: Logits, ids: Ids) -> None:
    """Removes ids."""
    work[ids] = -np.inf
