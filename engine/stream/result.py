"""What a stream returns: one record per token, one result per call of stream_ex.

Owns the shape of the results and nothing else. Probabilities come in two kinds, always both: raw is
the softmax of the model's untouched logits; sampled is the distribution the token was drawn from.
What is made once per token or more often is a named tuple, because a frozen dataclass takes three
times as long.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..cache.reuse import Reuse
from ..sampling.request import SampleResult, TraceStep
from ..text.vocabulary import Vocabulary
from .stop_when import StopCondition


class Origin(NamedTuple):
    """Where a token came from."""

    name: str
    proposed: int | None
    """The token that a draft had proposed, when another one was taken."""


class TopToken(NamedTuple):
    """One of the most likely tokens at a position, by raw probability."""

    token_id: int
    token_bytes: bytes
    logprob: float
    """Natural logarithm of `p_raw`."""
    p_raw: float
    p_sampled: float
    """0.0 when the sampler removed it."""


class TokenRecord(NamedTuple):
    """One token of the completion."""

    token_id: int
    token_bytes: bytes
    """What it adds to the text; empty for a special token that is not shown."""
    text_start: int
    text_end: int
    """The characters of the completion that its bytes are part of: [text_start, text_end)."""
    logprob: float
    """Natural logarithm of `p_raw`."""
    p_raw: float
    p_sampled: float
    top: tuple[TopToken, ...]
    """As many alternatives as were asked for, most likely first; it may include this token."""
    is_special: bool
    rank: int
    """How many tokens the model ranked higher; 0 is its first choice."""
    entropy: float
    """Of the raw distribution, in nats."""
    margin: float
    """Raw probability of the model's first choice minus that of its second."""
    kept_mass: float
    """The share of the softmax of the adjusted logits that the filters kept."""
    origin: str
    """Where the token came from: "model"; for an accepted draft "ngram", "pool", "mtp",
    "eagle", "draft_model", "prediction" or "constraint"; or "hook" for a token that the caller
    chose. Except for "hook", the token was drawn from the model's distribution in any case."""
    proposed: int | None
    """The token that a draft proposed here, if another one was drawn."""
    trace: tuple[TraceStep, ...]
    """What each stage of the sampler removed; empty unless return_trace."""
    watched: tuple[float, ...] = ()
    """The raw probability of each set of `watch`."""


def token_record(
    sampled: SampleResult,
    shown: bytes,
    span: tuple[int, int],
    origin: Origin,
    vocabulary: Vocabulary,
    watched: tuple[float, ...] = (),
) -> TokenRecord:
    """The record of a drawn token that adds the bytes `shown`, part of the characters `span`."""
    # By position, in the order of the fields: keywords would take twice the time.
    return TokenRecord(
        sampled.token_id,
        shown,
        span[0],
        span[1],
        sampled.logprob_raw,
        sampled.p_raw,
        sampled.p_sampled,
        _top(sampled, vocabulary) if sampled.top_ids else (),
        vocabulary.is_special(sampled.token_id),
        sampled.rank,
        sampled.entropy,
        sampled.margin,
        sampled.kept_mass,
        origin.name,
        origin.proposed,
        sampled.trace,
        watched,
    )


class PromptToken(NamedTuple):
    """One token of the prompt, and how likely the model thought it after the tokens before it.

    The first token has none before it, so its numbers are None.
    """

    token_id: int
    token_bytes: bytes
    """For a special token its name, so that the bytes of all tokens are the decoded prompt."""
    text_start: int
    text_end: int
    """The characters of the decoded prompt that its bytes are part of: [text_start, text_end)."""
    logprob: float | None
    """Natural logarithm of `p_raw`."""
    p_raw: float | None
    top: tuple[TopToken, ...]
    """As many alternatives as were asked for, most likely first; it may include this token. Nothing
    was drawn here, so their sampled probability is the raw one."""
    is_special: bool
    rank: int | None
    """How many tokens the model ranked higher."""
    entropy: float | None
    margin: float | None


def prompt_token(
    scored: SampleResult, data: bytes, span: tuple[int, int], vocabulary: Vocabulary
) -> PromptToken:
    """The record of a scored token of the prompt with the bytes `data`, part of the characters
    `span`.
    """
    # By position, as in token_record.
    return PromptToken(
        scored.token_id,
        data,
        span[0],
        span[1],
        scored.logprob_raw,
        scored.p_raw,
        _top(scored, vocabulary) if scored.top_ids else (),
        vocabulary.is_special(scored.token_id),
        scored.rank,
        scored.entropy,
        scored.margin,
    )


def _top(sampled: SampleResult, vocabulary: Vocabulary) -> tuple[TopToken, ...]:
    tops = zip(sampled.top_ids, sampled.top_logprobs_raw, sampled.top_p_sampled, strict=True)
    token_bytes = vocabulary.token_bytes
    return tuple(
        [TopToken(id_, token_bytes(id_), logprob, math.exp(logprob), p) for id_, logprob, p in tops]
    )


class Suppressed(NamedTuple):
    """Text that was generated and taken back, because it held a banned string."""

    text: str
    """From the first character of the token in which the string begins."""
    n_tokens: int
    n_kept: int
    """How many tokens of the completion were left; the next one was drawn in another way."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """How a stream began."""

    n_prompt: int
    n_cached: int
    """Prompt tokens whose keys and values were still in the cache."""
    aborted: bool
    seed: int
    reuse: Reuse
    """Where the cached tokens came from, and why there were no more."""
    prompt_tokens: tuple[PromptToken, ...] = ()
    """One per token of the prompt, with `return_prompt_tokens`; fewer after an abort."""


# eq=False: compared by items, as a mapping. init=False: the constructor of a frozen dataclass sets
# field after field, which takes several times as long.
@dataclass(frozen=True, eq=False, init=False)
class StreamResult(Mapping[str, Any]):
    """What one call of stream_ex adds; reads as attributes or, as in ExLlamaV2, as a mapping.

    The keys are always the same. Joined over a stream, `chunk` is the completion; the bytes of all
    records in `tokens`, then `dropped`, are the bytes of the completion, then of `dropped_text`.
    """

    chunk: str = ""
    """Text that is safe to show; may be empty while text is held back."""
    eos: bool = False
    eos_reason: str | None = None
    """Once `eos` is true: stop_token, stop_string, stop_when, length, constraint (its text is
    complete), banned (no continuation without a banned string was found) or aborted."""
    stop_string: str | None = None
    stop_token_id: int | None = None
    stop_condition: StopCondition | None = None
    """What of `stop_when` ended the text."""
    tokens: tuple[TokenRecord, ...] = ()
    """The tokens released by this call. A token that a stop string cuts in two is the last one."""
    dropped: tuple[TokenRecord, ...] = ()
    """The token that ended the text, which is not part of it, or the tokens that lie wholly inside
    or after a stop string.
    """
    dropped_text: str = ""
    probs: tuple[float, ...] | None = None
    """Sampled probability per token of `tokens`; None unless return_probabilities."""
    logits: npt.NDArray[np.float32] | None = None
    """Untouched logits of `tokens` and `dropped`, float32 (n, vocab_size), if return_logits."""
    suppressed: str = ""
    """Text that this call generated and took back, because it held a banned string."""
    taken_back: tuple[Suppressed, ...] = ()
    """The same, one entry per banned string."""
    healed: int | None = None
    """The last token of the prompt, if the first of `tokens` or `dropped` replaces it."""
    n_drafted: int = 0
    """Tokens that drafts proposed in this call."""
    n_accepted: int = 0
    """How many of them were accepted."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """`fields`: those that differ from their defaults. The result keeps the dictionary."""
        object.__setattr__(self, "__dict__", fields)

    @property
    def chunk_token_ids(self) -> tuple[int, ...]:
        return tuple(token.token_id for token in self.tokens)

    @property
    def top_tokens(self) -> tuple[tuple[int, ...], ...]:
        """For each of `tokens` the ids of its alternatives, most likely (raw) first."""
        return tuple(tuple(top.token_id for top in token.top) for token in self.tokens)

    @property
    def top_probs(self) -> tuple[tuple[float, ...], ...]:
        """The sampled probabilities of `top_tokens`."""
        return tuple(tuple(top.p_sampled for top in token.top) for token in self.tokens)

    def __getitem__(self, key: str) -> Any:
        if key not in _KEYS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)


_KEYS = (
    "chunk",
    "eos",
    "eos_reason",
    "stop_string",
    "stop_token_id",
    "stop_condition",
    "chunk_token_ids",
    "tokens",
    "dropped",
    "dropped_text",
    "probs",
    "top_tokens",
    "top_probs",
    "logits",
    "suppressed",
    "taken_back",
    "healed",
    "n_drafted",
    "n_accepted",
)
