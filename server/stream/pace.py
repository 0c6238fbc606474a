"""How fast the engine has been: what the last requests say of the next one.

Owns fits over the last requests: the time to the first token by the tokens to compute and the
context that they see, the time per token by the length of the prompt, and the time of scores by
their continuations, too. Knows no model: a fit is what was measured, so there is none before the
first request.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from .score import ScoreJob, ScoreStream
from .stream import CompletionStream

# Requests that are remembered: enough for three coefficients, few enough to follow a change.
_N_KEPT = 64
# Tokens of a prompt from which on the time to the first token is that of computing them.
_MANY = 32
# Pulls coefficients that the requests leave open to zero.
_RIDGE = 1e-6

_Features = tuple[float, ...]


class Pace:
    """The last requests of one engine. Thread-safe: each list is replaced as a whole."""

    def __init__(self) -> None:
        self._first: deque[tuple[_Features, float]] = deque(maxlen=_N_KEPT)
        self._each: deque[tuple[_Features, float]] = deque(maxlen=_N_KEPT)
        self._scored: deque[tuple[_Features, float]] = deque(maxlen=_N_KEPT)
        self._whole: deque[float] = deque(maxlen=_N_KEPT)

    def ended(self, stream: CompletionStream) -> None:
        """Learn from a stream that has ended in the engine."""
        counts, clocks = stream.counts, stream.clocks
        if stream.error is not None or clocks.first_token_s is None:
            return
        if isinstance(stream, ScoreStream):
            self._whole.append(clocks.prefill_s)
            self._scored.append((_of_scores(stream.job, counts.n_cached), clocks.prefill_s))
            return
        if not counts.n_completion:
            return
        self._whole.append(clocks.prefill_s + clocks.decode_s)
        if any(job.input_ids is not stream.jobs[0].input_ids for job in stream.jobs):
            return  # the sums over several prompts say nothing of one
        first_s = clocks.first_token_s - clocks.queued_s
        n_computed = counts.n_prompt - counts.n_cached
        self._first.append((_of_prompt(n_computed, counts.n_cached), first_s))
        if len(stream.jobs) == 1 and counts.n_completion > 1:
            rest_s = clocks.prefill_s + clocks.decode_s - first_s
            self._each.append((_of_step(counts.n_prompt), rest_s / (counts.n_completion - 1)))

    def first_token_s(self, n_computed: int, n_cached: int) -> float | None:
        """Seconds in the engine to the first token; None if nothing is known."""
        return _predicted([*self._first], _of_prompt(n_computed, n_cached))

    def computed_token_s(self) -> float | None:
        """Seconds per token of a prompt that is computed, the mean; None if none was long enough.

        Not from the fit: where all prompts are of one length, that leaves open what a token adds.
        """
        seen = [(features[1], s) for features, s in [*self._first] if features[1] >= _MANY]
        n_computed = sum(n for n, _ in seen)
        return sum(s for _, s in seen) / n_computed if n_computed else None

    def scores_s(self, job: ScoreJob, n_cached: int) -> float | None:
        """Seconds in the engine to the last score."""
        return _predicted([*self._scored], _of_scores(job, n_cached))

    def per_token_s(self, n_prompt: int) -> float | None:
        """Seconds from one token to the next."""
        return _predicted([*self._each], _of_step(n_prompt))

    def request_s(self) -> float | None:
        """Seconds that a request spends in the engine, the mean."""
        whole = [*self._whole]
        return sum(whole) / len(whole) if whole else None


def _of_prompt(n_computed: int, n_cached: int) -> _Features:
    """A pass, its tokens, and the positions that their attention sees (thousands)."""
    return (1.0, n_computed, n_computed * (n_cached + n_computed / 2) / 1000)


def _of_scores(job: ScoreJob, n_cached: int) -> _Features:
    """The passes, their tokens, and the positions that their attention sees (thousands). The first
    token of a continuation needs no pass, because its logits are those after the prompt.
    """
    n_prompt = len(job.input_ids)
    _, n_computed, n_seen = _of_prompt(n_prompt - n_cached, n_cached)
    lengths = [len(each) - 1 for each in job.continuations]
    n_passes = 1 + sum(length > 0 for length in lengths)
    n_seen += sum(length * (n_prompt + length / 2) for length in lengths) / 1000
    return (n_passes, n_computed + sum(lengths), n_seen, len(lengths))


def _of_step(n_prompt: int) -> _Features:
    return (1.0, n_prompt / 1000)


def _predicted(seen: Sequence[tuple[_Features, float]], wanted: _Features) -> float | None:
    """What `wanted` takes by least squares of the relative errors."""
    seen = [each for each in seen if each[1] > 0]
    if not seen:
        return None
    rows = np.array([features for features, _ in seen])
    seconds = np.array([taken for _, taken in seen])
    scaled = rows / seconds[:, None]
    scale = np.linalg.norm(scaled, axis=0)
    scale[scale == 0] = 1.0
    n = len(wanted)
    left = np.vstack([scaled / scale, _RIDGE * np.eye(n)])
    right = np.concatenate([np.ones(len(seen)), np.zeros(n)])
    coefficients = np.linalg.lstsq(left, right, rcond=None)[0] / scale
    fitted = float(coefficients @ np.array(wanted))
    # A fit may run below zero outside of what it has seen.
    return max(fitted, float(seconds.min()) * 0.5)
