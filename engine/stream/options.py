"""The options of one stream: all but its prompt and its sampling settings.

Owns the options, their defaults and their allowed values. Of the model it knows only the size of
the vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..abort import AbortFlag
from ..errors import InvalidInputError
from ..grammar.spec import ConstraintSpec
from ..sampling.request import SampleResult
from ..text.token_ids import check_token_ids
from .stop_when import StopWhen

# The value of max_tokens_per_call without a limit.
NO_LIMIT = 2**31 - 1


@runtime_checkable
class IdArray(Protocol):
    """An array of token ids: a numpy array or a torch tensor."""

    @property
    def shape(self) -> Sequence[int]: ...

    def tolist(self) -> Any: ...


class Live(NamedTuple):
    """The part of the options that belongs to the caller of the moment: no snapshot holds it."""

    isolation_key: str = ""
    on_token: Callable[[SampleResult], int | None] | None = None
    abort: AbortFlag | None = None
    on_progress: Callable[[int, int], None] | None = None
    turn_starts: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What to generate, what to report and what to reuse. The defaults stream plain text."""

    max_new_tokens: int | None = None
    """The most tokens to generate. None means up to the end of the context."""
    min_new_tokens: int = 0
    """No stop token is drawn before this many tokens."""
    stop: Sequence[str] = ()
    """Strings that end the text; it ends before the string."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end the text. None means the model's own."""
    ignore_eos: bool = False
    """Whether the model's own stop tokens are ignored."""
    stop_when: StopWhen | None = None
    """Conditions of the model's own numbers that end the text. They do not count before
    `min_new_tokens`.
    """
    banned_strings: Sequence[str] = ()
    """Strings that never show, in upper or lower case: the text goes back to before them and
    continues differently.
    """
    token_healing: bool = False
    """Whether the last token of the prompt may become a longer one that begins with its bytes."""
    constraint: ConstraintSpec | None = None
    """A JSON schema, regex or grammar that the text must match."""
    negative_ids: Sequence[int] | IdArray | None = None
    """The negative prompt, to lead away from (guidance); needs `cfg_scale`. The raw probabilities
    are then those of the mixed logits.
    """
    cfg_scale: float = 1.0
    """Strength of the guidance. 1 means none."""
    speculate: bool = True
    """Whether tokens may be drafted. The text is the same either way."""
    prediction: Sequence[int] = ()
    """Token ids of the expected text, for drafts."""
    isolation_key: str = ""
    """Cached keys and values are shared only between streams with equal keys; drafts only come from
    texts without a key.
    """
    reuse_prefix: bool = True
    """Whether a beginning of the prompt that is known need not be computed again."""
    max_tokens_per_call: int | None = None
    """The most tokens that one step returns. None means all tokens of a pass."""
    return_probabilities: bool = False
    """Whether results carry the probabilities of their tokens as arrays."""
    return_top_tokens: int = 0
    """Alternatives to report with each token."""
    return_prompt_tokens: int | None = None
    """Alternatives to report with each token of the prompt, in `Prefill.prompt_tokens`. None means
    that the prompt is not reported. These are the model's own numbers for the prompt as given,
    whatever guidance, constraint and healing do after it; cached positions are computed again.
    """
    watch: Sequence[Sequence[int]] = ()
    """Sets of token ids whose raw probability is reported with each token, in
    `TokenRecord.watched`, drawn or not.
    """
    return_logits: bool = False
    """Whether results carry the logits of their tokens."""
    return_trace: bool = False
    """Whether tokens report what each stage of the sampler removed."""
    decode_special_tokens: bool = False
    """Whether special tokens show in the text."""
    on_token: Callable[[SampleResult], int | None] | None = None
    """Sees each token drawn and may return another id to take its place."""
    abort: AbortFlag | None = None
    """Checked during the prefill and before every token."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with (done, total) after each chunk of the prefill; `total` is the number of prompt
    tokens that were not cached.
    """
    turn_starts: Sequence[int] = ()
    """Positions in the prompt from which another prompt is likely to differ, as where a message of
    a chat begins. The states of recurrent layers are kept there for it; nothing else changes.
    """

    @property
    def live(self) -> Live:
        return Live(
            self.isolation_key, self.on_token, self.abort, self.on_progress, self.turn_starts
        )

    def without_live(self) -> "StreamOptions":
        """As a snapshot holds them: ids and strings as tuples, and the prompt reported already."""
        negative, stop_ids = self.negative_ids, self.stop_token_ids
        return replace(
            self,
            stop=tuple(self.stop),
            stop_token_ids=None if stop_ids is None else tuple(stop_ids),
            banned_strings=tuple(self.banned_strings),
            negative_ids=None if negative is None else tuple(_listed(negative)),
            prediction=tuple(self.prediction),
            watch=tuple(tuple(token_ids) for token_ids in self.watch),
            return_prompt_tokens=None,
            **Live()._asdict(),
        )

    @property
    def reads_rows(self) -> bool:
        """Whether a row of logits is still read after its token was drawn, a hook aside."""
        judges_rows = self.stop_when is not None and self.stop_when.p_eos_gt is not None
        return self.return_logits or bool(self.watch) or judges_rows

    def check(self, vocab_size: int) -> None:
        """Raises InvalidInputError with the option, its allowed values and the wrong one."""
        _check_strings("stop", self.stop)
        _check_strings("banned_strings", self.banned_strings)
        if self.max_new_tokens is not None:
            _require_at_least(0, self.max_new_tokens, "max_new_tokens")
        _require_at_least(0, self.min_new_tokens, "min_new_tokens")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InvalidInputError(
                f"min_new_tokens must be at most max_new_tokens, {self.max_new_tokens}, "
                f"not {self.min_new_tokens}",
                param="min_new_tokens",
            )
        if self.max_tokens_per_call is not None:
            _require_at_least(1, self.max_tokens_per_call, "max_tokens_per_call")
        if self.stop_token_ids is not None:
            check_token_ids("stop_token_ids", self.stop_token_ids, vocab_size)
        check_token_ids("prediction", self.prediction, vocab_size)
        for i, token_ids in enumerate(self.watch):
            if len(token_ids) == 0:
                raise InvalidInputError(
                    f"watch[{i}] is empty: it needs at least one token id", param="watch"
                )
            check_token_ids("watch", token_ids, vocab_size)
        for name, n_top in (
            ("return_top_tokens", self.return_top_tokens),
            ("return_prompt_tokens", self.return_prompt_tokens or 0),
        ):
            if not 0 <= n_top <= vocab_size:
                raise InvalidInputError(
                    f"{name} must be between 0 and {vocab_size}, not {n_top}", param=name
                )


def _listed(ids: Sequence[int] | IdArray) -> list[int]:
    """The ids of an array (n,) or (1, n), or of any sequence."""
    values = ids.tolist() if isinstance(ids, IdArray) else list(ids)
    return values[0] if values and isinstance(values[0], list) else values


def _check_strings(name: str, strings: Sequence[str]) -> None:
    if isinstance(strings, str):  # a mistake: it would be read as its characters
        raise InvalidInputError(
            f"{name} must be a sequence of strings, not {strings!r}", param=name
        )
    if "" in strings:
        raise InvalidInputError(f"{name} must not hold an empty string", param=name)


def _require_at_least(least: int, value: int, name: str) -> None:
    if value < least:
        raise InvalidInputError(f"{name} must be {least} or more, not {value}", param=name)
