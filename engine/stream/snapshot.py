"""A stream at one place: what it needs to go on there, as plain data.

Owns what belongs to a place and what of it is left at an earlier one. There are no keys and values,
no text and no matcher in it, because all of that follows from the tokens; nor what belongs to the
caller of the moment (see `Live`). Knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple

from ..errors import InvalidInputError
from ..sampling.random_numbers import MAX_SEED, random_seed
from ..sampling.settings import SamplingSettings
from .options import StreamOptions

GivenOrigin = Literal["forced", "injected", "hook"]

# Options that decide what the tokens so far meant, so that another value would need another past.
_FIXED = ("token_healing", "negative_ids", "cfg_scale", "decode_special_tokens", "return_logits")
MAX_ATTEMPT = 2**16 - 1


class GivenToken(NamedTuple):
    """A token that somebody chose; it was not drawn."""

    token_id: int
    origin: GivenOrigin


class GivenRun(NamedTuple):
    """The tokens [start, stop) of the completion, which somebody chose."""

    start: int
    stop: int
    origin: GivenOrigin


class Rewind(NamedTuple):
    """A banned string was found: the stream went back to `n_tokens` tokens, where `token_id` is not
    drawn again.
    """

    n_tokens: int
    token_id: int


class CallBan(NamedTuple):
    """Tokens that one call of `step` excluded from the draw after `n_tokens` tokens."""

    n_tokens: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Settings and options that hold from one token of the completion to the next segment."""

    start: int
    settings: SamplingSettings
    """With a seed."""
    options: StreamOptions
    """Without what is `Live`."""
    attempt: int = 0
    """Which of the random numbers of each position are used: 0 to 65535. Another one gives another
    text with the same seed.
    """


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`StreamingGenerator.restore` makes a stream of it that goes on as this one would have: the
    same tokens, to the last bit of their probabilities.

    It was taken between two steps, or after the end. Of a stream that ended it holds the tokens
    before its stop token; restored, it goes on after them.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """The completion so far, text that was still held included."""
    segments: tuple[Segment, ...]
    """In order; the first starts at 0."""
    given: tuple[GivenRun, ...] = ()
    rewinds: tuple[Rewind, ...] = ()
    """All of them, in the order in which they happened."""
    call_bans: tuple[CallBan, ...] = ()
    mus: tuple[float, ...] = ()
    """Mirostat's mu before the completion and after each token; () without mirostat."""
    logprob_sums: tuple[float, ...] = ()
    """Of the raw logprobs that count for `stop_when`, before the completion and after each token,
    up to the last that counts; () if no mean was asked for.
    """
    waiting: tuple[GivenToken, ...] = ()
    """Tokens that were forced or injected and come next."""
    fingerprint: str = ""
    """Of the engine: another one computes other logits."""

    @classmethod
    def new(
        cls,
        prompt_ids: Sequence[int],
        settings: SamplingSettings,
        options: StreamOptions,
        fingerprint: str = "",
    ) -> "Snapshot":
        """A stream that has no tokens yet. Without a seed it gets a random one."""
        seed = random_seed() if settings.seed is None else settings.seed & MAX_SEED
        first = Segment(0, replace(settings, seed=seed), options.without_live())
        return cls(tuple(prompt_ids), (), (first,), fingerprint=fingerprint)

    @property
    def n_tokens(self) -> int:
        """Tokens of the completion, those that are still waiting excluded."""
        return len(self.token_ids)

    @property
    def settings(self) -> SamplingSettings:
        """Those in force, with the seed."""
        return self.segments[-1].settings

    @property
    def options(self) -> StreamOptions:
        return self.segments[-1].options

    @property
    def attempt(self) -> int:
        return self.segments[-1].attempt

    def at(self, n_tokens: int) -> "Snapshot":
        """The stream as it was when it last had its first `n_tokens` tokens, 0 to all of them.

        Restored without a change, it repeats what followed. Raises InvalidInputError, param "at".
        """
        if not 0 <= n_tokens <= len(self.token_ids):
            raise InvalidInputError(
                f"at must be between 0 and {len(self.token_ids)}, the tokens of the completion "
                f"before a stop token, not {n_tokens}",
                param="at",
            )
        return replace(
            self,
            token_ids=self.token_ids[:n_tokens],
            segments=tuple(each for each in self.segments if each.start <= n_tokens),
            given=clipped(self.given, n_tokens),
            rewinds=self._rewinds_at(n_tokens),
            call_bans=tuple(each for each in self.call_bans if each.n_tokens <= n_tokens),
            mus=self.mus[: n_tokens + 1],
            logprob_sums=self.logprob_sums[: n_tokens + 1],
            waiting=(),
        )

    def rewound(self, n_tokens: int) -> "Snapshot":
        """Like `at`, but with the settings, options and attempt that are in force now."""
        past = self.at(n_tokens)
        kept = with_segment(past.segments, replace(self.segments[-1], start=n_tokens))
        bans = tuple(each for each in past.call_bans if each.n_tokens < n_tokens)
        return replace(past, segments=kept, call_bans=bans)

    def changed(
        self,
        *,
        settings: SamplingSettings | None = None,
        options: StreamOptions | None = None,
        attempt: int | None = None,
    ) -> "Snapshot":
        """The same place, from which other settings hold. None: as before.

        `settings` without a seed keep the stream's. A constraint that differs from the one so far
        holds for the text from here on. Raises InvalidInputError for an option that cannot change
        in the middle of a stream, and for an attempt that is not 0 to 65535.
        """
        last = self.segments[-1]
        if settings is not None:
            seed = last.settings.seed if settings.seed is None else settings.seed & MAX_SEED
            last = replace(last, settings=replace(settings, seed=seed))
        if options is not None:
            last = replace(last, options=changed_options(last.options, options))
        if attempt is not None:
            if not 0 <= attempt <= MAX_ATTEMPT:
                raise InvalidInputError(
                    f"attempt must be between 0 and {MAX_ATTEMPT}, not {attempt}", param="attempt"
                )
            last = replace(last, attempt=attempt)
        last = replace(last, start=len(self.token_ids))
        return replace(self, segments=with_segment(self.segments, last))

    def forced(self, token_id: int) -> "Snapshot":
        """The next token is `token_id`, after those that wait already."""
        return replace(self, waiting=(*self.waiting, GivenToken(token_id, "forced")))

    def injected(self, token_ids: Sequence[int]) -> "Snapshot":
        """The next tokens are `token_ids`, after those that wait already."""
        given = [GivenToken(token_id, "injected") for token_id in token_ids]
        return replace(self, waiting=(*self.waiting, *given))

    def _rewinds_at(self, n_tokens: int) -> tuple[Rewind, ...]:
        """Those that had happened when the stream last had `n_tokens` tokens: a later one would
        have gone back to more tokens than that.
        """
        n = len(self.rewinds)
        while n and self.rewinds[n - 1].n_tokens > n_tokens:
            n -= 1
        return self.rewinds[:n]


def with_segment(segments: Sequence[Segment], last: Segment) -> tuple[Segment, ...]:
    """`last` takes the place of those that start where it does, or later."""
    return (*(each for each in segments if each.start < last.start), last)


def clipped(runs: Sequence[GivenRun], n_tokens: int) -> tuple[GivenRun, ...]:
    """The part of the runs before token `n_tokens`."""
    return tuple(run._replace(stop=min(run.stop, n_tokens)) for run in runs if run.start < n_tokens)


def changed_options(old: StreamOptions, new: StreamOptions) -> StreamOptions:
    """`new` without what is Live. Raises InvalidInputError for a change that cannot be exact."""
    new = new.without_live()
    for name in _FIXED:
        if getattr(new, name) != getattr(old, name):
            raise InvalidInputError(
                f"{name} cannot change in the middle of a stream: it is {getattr(old, name)!r}",
                param=name,
            )
    return new


OPTION_NAMES = tuple(each.name for each in fields(StreamOptions))
