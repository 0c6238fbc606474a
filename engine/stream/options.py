"""What a caller asks of one stream beside its prompt and its sampling, checked.

Owns the options and their allowed values. Knows no model but its vocabulary's size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..abort import AbortFlag
from ..errors import InvalidInputError
from ..sampling.request import SampleResult
from ..text.token_ids import check_token_ids

# A call may return this many tokens at most when nothing smaller is asked for.
NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """See StreamingGenerator.begin_stream_ex, whose arguments these are."""

    max_new_tokens: int | None
    min_new_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...] | None
    ignore_eos: bool
    banned_strings: tuple[str, ...]
    max_tokens_per_call: int | None
    return_probabilities: bool
    return_top_tokens: int
    return_prompt_tokens: int | None
    return_logits: bool
    return_trace: bool
    decode_special_tokens: bool
    on_token: Callable[[SampleResult], int | None] | None
    abort: AbortFlag | None

    def check(self, vocab_size: int) -> None:
        """Raises InvalidInputError with the name, the allowed values and the one that is not."""
        if self.max_new_tokens is not None:
            _require_at_least(0, self.max_new_tokens, "max_new_tokens", param="max_tokens")
        _require_at_least(0, self.min_new_tokens, "min_new_tokens", param="min_tokens")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InvalidInputError(
                f"min_new_tokens must be at most max_new_tokens, {self.max_new_tokens}, "
                f"not {self.min_new_tokens}",
                param="min_tokens",
            )
        if self.max_tokens_per_call is not None:
            _require_at_least(1, self.max_tokens_per_call, "max_tokens_per_call")
        for name, strings in (("stop", self.stop), ("banned_strings", self.banned_strings)):
            if "" in strings:
                raise InvalidInputError(f"{name} must not hold an empty string", param=name)
        check_token_ids("stop_token_ids", self.stop_token_ids or (), vocab_size)
        for name, n_top, param in (
            ("return_top_tokens", self.return_top_tokens, "top_logprobs"),
            ("return_prompt_tokens", self.return_prompt_tokens or 0, "prompt_logprobs"),
        ):
            if not 0 <= n_top <= vocab_size:
                raise InvalidInputError(
                    f"{name} must be between 0 and {vocab_size}, not {n_top}", param=param
                )


def strings_of(name: str, strings: Sequence[str]) -> tuple[str, ...]:
    """A tuple of them; one string instead of several is a mistake that reads as its characters."""
    if isinstance(strings, str):
        raise InvalidInputError(
            f"{name} must be a sequence of strings, not {strings!r}", param=name
        )
    return tuple(strings)


def _require_at_least(least: int, value: int, name: str, *, param: str | None = None) -> None:
    if value < least:
        raise InvalidInputError(f"{name} must be {least} or more, not {value}", param=param or name)
