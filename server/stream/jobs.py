"""The engine's job for one choice of an answer, and the events that come back.

Owns the types between the engine thread and the shapes of answers: a job, its events, and the
counts and times over the jobs of a request. Knows no thread and no shape of an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine import (
    DraftCount,
    Prefill,
    PromptToken,
    Reuse,
    SamplingSettings,
    Snapshot,
    StreamOptions,
    StreamResult,
    TokenRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionJob:
    """What to generate for one choice of the answer, in the engine's types."""

    index: int
    """Index of the choice."""
    input_ids: Sequence[int]
    """Jobs that share this object continue the same prompt."""
    settings: SamplingSettings
    options: StreamOptions
    """The stream adds `abort`, `on_progress` and the client's part of `isolation_key`."""
    include_stop: bool = False
    """Whether the text includes the stop string that ended it."""
    token_by_token: bool = False
    """Whether each token is a separate step, though a pass may yield several."""
    progress: bool = False
    """Whether to report the progress of the prefill."""
    max_seconds: float | None = None
    """Time limit for decoding; None for no limit."""
    snapshot: Snapshot | None = None
    """Where to go on, instead of beginning: `settings` and `options` are then those in it."""
    inherited: Sequence["Step"] = ()
    """The steps of the stream that `snapshot` is of."""


class Begun(NamedTuple):
    """A job's prompt has been prefilled."""

    choice: int
    prefill: Prefill
    clock: float
    """Seconds since the request was queued, here and below."""
    began: float = 0.0
    """When the job began in the engine."""


class Progress(NamedTuple):
    """How far the prefill is."""

    choice: int
    processed: int
    """Processed tokens of the prompt, including cached ones."""
    cached: int
    began: float
    """When the job began in the engine."""
    clock: float


class Step(NamedTuple):
    """What one pass of the model, or one token of it, adds to a choice."""

    choice: int
    result: StreamResult
    clock: float
    stop_detail: str | None = None
    """"time" if the job ended because of its `max_seconds`."""


class Scored(NamedTuple):
    """A continuation of a prompt has been scored."""

    choice: int
    """Index of the continuation."""
    tokens: Sequence[PromptToken]
    clock: float


class Controlled(NamedTuple):
    """Something was done with a stream between two tokens."""

    choice: int
    kind: str
    n_tokens: int
    """Of the completion, after it."""
    arguments: Mapping[str, Any]
    clock: float
    pieces: tuple[Step, ...] | None = None
    """The steps that are left, if some were taken back."""


Event = Begun | Progress | Step | Controlled | Scored


def event_bytes(event: Event) -> int:
    """About how much memory an event takes, with its tokens and the alternatives to each."""
    records: Sequence[TokenRecord | PromptToken] = ()
    if isinstance(event, Step):
        records = event.result.tokens
    elif isinstance(event, Begun):
        records = event.prefill.prompt_tokens
    elif isinstance(event, Scored):
        records = event.tokens
    if not records:
        return 512
    return 512 + len(records) * (512 + 192 * len(records[-1].top))


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Sums over the jobs. A prompt that several jobs continue counts once."""

    n_prompt: int = 0
    n_cached: int = 0
    n_completion: int = 0
    """Includes a sampled stop token."""
    n_drafted: int = 0
    n_accepted: int = 0
    n_predicted_accepted: int = 0
    n_predicted_rejected: int = 0
    """Tokens of the prediction that were tried and rejected."""
    n_reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where the time went: seconds, summed over the jobs."""

    queued_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    first_token_s: float | None = None
    """From joining the queue to the first result; None without a result."""


class JobEnd(NamedTuple):
    """How a job ended that no error cut off."""

    eos_reason: str
    """The engine's, or "time" if its `max_seconds` were over."""
    reuse: Reuse
    drafts: Mapping[str, DraftCount]
    """By drafter."""


def isolation_key(caller: str, key: str) -> str:
    """The isolation key of the engine: of a caller, and of the `key` in its options."""
    return f"{caller}/{key}" if caller else key
