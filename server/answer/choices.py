"""Several choices of one request: one job after another, each with its own random numbers.

Owns how many there may be, their seeds, and which are best. Knows no shape of an answer.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine import SamplingSettings, StreamResult, TokenRecord, derived_seed

from ..errors import RequestError
from ..stream.jobs import Begun, CompletionJob, Controlled, Event, Step

MAX_CHOICES = 128
"""Completions that one request may ask for, over all its prompts."""

MAX_TOKENS = 2**19
"""Tokens that the choices of one answer may have: it is kept in memory until it is read."""


@dataclass(slots=True)
class ChoiceEvents:
    """All events of one choice."""

    begun: Begun
    pieces: list[Step] = field(default_factory=list)


def check_choices(n: int, n_prompts: int, *, param: str) -> None:
    """Raise for a number of choices per prompt that cannot be served."""
    if n < 1:
        raise RequestError(f"{param} must be 1 or more, not {n}", param=param)
    if n * n_prompts > MAX_CHOICES:
        raise RequestError(
            f"{param} of {n} for {n_prompts} prompt(s) asks for {n * n_prompts} completions; the "
            f"limit is {MAX_CHOICES} per request",
            param=param,
        )


def spread(jobs: Iterable[CompletionJob], n: int) -> list[CompletionJob]:
    """`n` jobs for each of `jobs`, one prompt after another, the choices numbered through.

    The first has the seed of the request and reports the prompt; the others find the prompt in the
    cache and report nothing of it. Raises RequestError if the answer could become too long.
    """
    jobs = tuple(jobs)
    n_tokens = n * sum(
        (job.options.max_new_tokens or 0)
        + (0 if job.options.return_prompt_tokens is None else len(job.input_ids))
        for job in jobs
    )
    if n * len(jobs) > 1 and n_tokens > MAX_TOKENS:
        raise RequestError(
            f"the {n * len(jobs)} choices may reach {n_tokens} tokens; the limit is {MAX_TOKENS} "
            "per request: ask for fewer choices, or set max_tokens",
            param="n",
        )
    return [
        dataclasses.replace(
            job,
            index=i * n + k,
            settings=_settings(job.settings, k),
            options=job.options
            if k == 0
            else dataclasses.replace(job.options, return_prompt_tokens=None),
            progress=job.progress and k == 0,
        )
        for i, job in enumerate(jobs)
        for k in range(n)
    ]


def by_choice(events: Iterable[Event]) -> dict[int, ChoiceEvents]:
    """The events, by choice."""
    choices: dict[int, ChoiceEvents] = {}
    for event in events:
        if isinstance(event, Begun):
            choices[event.choice] = ChoiceEvents(event)
        elif isinstance(event, Step):
            choices[event.choice].pieces.append(event)
        elif isinstance(event, Controlled) and event.pieces is not None:
            choices[event.choice].pieces = list(event.pieces)
    return choices


def best(candidates: Sequence[ChoiceEvents], n: int) -> list[ChoiceEvents]:
    """The `n` candidates with the highest mean logprob per token, the best first."""
    return sorted(candidates, key=_mean_logprob, reverse=True)[:n]


def sampled(result: StreamResult) -> tuple[TokenRecord, ...]:
    """Every generated token, also those that ended the text and are not part of it."""
    return (*result.tokens, *result.dropped) if result.dropped else result.tokens


def _settings(settings: SamplingSettings, k: int) -> SamplingSettings:
    if settings.seed is None or k == 0:
        return settings
    return dataclasses.replace(settings, seed=derived_seed(settings.seed, k))


def _mean_logprob(choice: ChoiceEvents) -> float:
    records = [record for piece in choice.pieces for record in sampled(piece.result)]
    if not records:
        return -math.inf
    return math.fsum(record.logprob for record in records) / len(records)
