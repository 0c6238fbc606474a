"""Conditions that end a text: the model is unsure, repeats itself, or would rather stop.

Owns the conditions, their ranges, and what has to be remembered of the tokens to judge them. A
condition is judged token by token, from that token's own row, so drafts change nothing. Knows no
text and no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import InvalidInputError
from ..sampling.logits import Row
from ..sampling.request import SampleResult
from .mass import Mass

MAX_WINDOW = 256
MAX_TIMES = 64


class Repeat(NamedTuple):
    """A loop: at most `window` tokens, and the same ones again, `times` times in all."""

    window: int
    times: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWhen:
    """The text ends before the first token at which one of these holds. None: never."""

    entropy_gt: float | None = None
    """The entropy of the raw distribution, in nats, is above this."""
    mean_logprob_lt: float | None = None
    """The mean of the raw logprobs so far, with this token's, is below this."""
    p_eos_gt: float | None = None
    """The raw probability of the model's own end tokens is above this."""
    repeat: Repeat | None = None
    """The text ends with the same tokens again and again."""

    def __post_init__(self) -> None:
        """Raises InvalidInputError with the condition, its allowed values and the wrong one."""
        _check("entropy_gt", self.entropy_gt, 0.0, 100.0)
        _check("mean_logprob_lt", self.mean_logprob_lt, -1000.0, 0.0)
        _check("p_eos_gt", self.p_eos_gt, 0.0, 1.0)
        if self.repeat is not None:
            _check("repeat.window", self.repeat.window, 1, MAX_WINDOW)
            _check("repeat.times", self.repeat.times, 2, MAX_TIMES)


class StopCondition(NamedTuple):
    """A condition that has ended a text."""

    name: str
    """entropy_gt, mean_logprob_lt, p_eos_gt or repeat."""
    value: float
    """What was above or below the limit; of a repeat how many tokens were repeated."""


class StopConditions:
    """Judges one completion; counts in tokens, so that they can be taken back.

    Conditions that come in the middle of it are about the tokens from there on.
    """

    def __init__(self, eos_token_ids: Sequence[int], sums: Sequence[float] = ()) -> None:
        """`sums`: those of the judge whose completion goes on here. Call `begin` next."""
        self._eos = Mass(eos_token_ids) if eos_token_ids else None
        self._sums = [*sums]
        self._when = StopWhen()
        self._start = 0
        self._token_ids: list[int] = []

    @property
    def sums(self) -> tuple[float, ...]:
        """Of the raw logprobs that counted for a mean, before the completion and after each token,
        up to the last that counted; () if no mean was asked for.
        """
        return tuple(self._sums)

    def begin(self, when: StopWhen, start: int, token_ids: Sequence[int]) -> None:
        """`when` holds for the tokens after `token_ids`, and began after the first `start`."""
        self._when, self._start = when, start
        self._token_ids = [*token_ids]
        if when.mean_logprob_lt is not None:
            sums = self._sums or [0.0]
            self._sums = [*sums, *[sums[-1]] * (len(token_ids) + 1 - len(sums))]

    def judge(self, token: SampleResult, row: Row, drawn: SampleResult) -> StopCondition | None:
        """The condition that holds with the next token, if one does.

        `row` (vocab_size,): its logits, from which `drawn` was drawn; `token`: what was taken.
        """
        when = self._when
        self._token_ids.append(token.token_id)
        if when.mean_logprob_lt is not None:
            self._sums.append(self._sums[-1] + token.logprob_raw)
        if when.entropy_gt is not None and token.entropy > when.entropy_gt:
            return StopCondition("entropy_gt", token.entropy)
        if when.p_eos_gt is not None and self._eos is not None:
            p_eos = self._eos.of(row, drawn)
            if p_eos > when.p_eos_gt:
                return StopCondition("p_eos_gt", p_eos)
        if when.mean_logprob_lt is not None:
            n_tokens = len(self._token_ids) - self._start
            mean = (self._sums[-1] - self._sums[self._start]) / n_tokens
            if mean < when.mean_logprob_lt:
                return StopCondition("mean_logprob_lt", mean)
        return None if when.repeat is None else self._repeated(when.repeat)

    def rollback(self, n_tokens: int) -> None:
        """Forget all but the first `n_tokens`."""
        del self._token_ids[n_tokens:], self._sums[n_tokens + 1 :]

    def _repeated(self, repeat: Repeat) -> StopCondition | None:
        ids, (window, times) = self._token_ids, repeat
        last, n = ids[-1], len(ids)
        for period in range(1, min(window, (n - self._start) // times) + 1):
            # Almost always this one comparison decides.
            if ids[n - 1 - period] != last:
                continue
            n_again = period * (times - 1)
            if ids[n - n_again :] == ids[n - n_again - period : n - period]:
                return StopCondition("repeat", period)
        return None


def _check(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidInputError(
            f"stop_when.{name} must be between {low} and {high}, not {value}",
            param=f"stop_when.{name}",
        )
