"""What is asked of the engine for one choice of an answer, and what comes back, as events.

Owns the words between the engine thread and the shapes of answers: a job, its events, and what is
counted and timed over the jobs of a request. Knows no thread and no shape of an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine import (
    DraftCount,
    Prefill,
    PromptToken,
    Reuse,
    SamplingSettings,
    StreamOptions,
    StreamResult,
    TokenRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionJob:
    """What to generate for one choice of the answer, in the engine's words."""

    index: int
    """Of the choice. Jobs that share their `input_ids` object continue one prompt."""
    input_ids: Sequence[int]
    settings: SamplingSettings
    options: StreamOptions
    """The stream adds `abort`, `on_progress` and the client's part of `isolation_key`."""
    include_stop: bool = False
    """Whether the text ends with the stop string that ended it, instead of before it."""
    token_by_token: bool = False
    """Whether each token is a piece of its own, though a pass may yield several."""
    progress: bool = False
    """Whether the prefill is reported as it goes on."""
    max_seconds: float | None = None
    """How long it may decode."""


class Begun(NamedTuple):
    """A job's prompt is in the engine."""

    choice: int
    prefill: Prefill
    clock: float
    """Seconds since the request was queued, here and below."""


class Progress(NamedTuple):
    """So much of the prompt is known."""

    choice: int
    processed: int
    """Tokens of the prompt, the cached ones included."""
    cached: int
    began: float
    """When the job came into the engine."""
    clock: float


class Step(NamedTuple):
    """What one pass of the model adds to a choice, or one token of it."""

    choice: int
    result: StreamResult
    clock: float
    stop_detail: str | None = None
    """"time": the job ended because its `max_seconds` were over."""


Event = Begun | Progress | Step


def event_bytes(event: Event) -> int:
    """About how much memory an event takes: that of its tokens and of the alternatives to each."""
    records: Sequence[TokenRecord | PromptToken] = ()
    if isinstance(event, Step):
        records = event.result.tokens
    elif isinstance(event, Begun):
        records = event.prefill.prompt_tokens
    if not records:
        return 512
    return 512 + len(records) * (512 + 192 * len(records[-1].top))


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Summed over the jobs; a prompt that several of them continue counts once."""

    n_prompt: int = 0
    n_cached: int = 0
    n_completion: int = 0
    """A sampled stop token included."""
    n_drafted: int = 0
    n_accepted: int = 0
    n_predicted_accepted: int = 0
    n_predicted_rejected: int = 0
    """Tokens of the prediction that were tried and did not come."""
    n_reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time went, in seconds, summed over the jobs."""

    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    first_token_s: float | None = None
    """From the queue to the first result; None: there was none."""


class JobEnd(NamedTuple):
    """What became of a job that was not cut off by an error."""

    eos_reason: str
    """The engine's, or "time" when its `max_seconds` were over."""
    reuse: Reuse
    drafts: Mapping[str, DraftCount]
    """By who made them."""
