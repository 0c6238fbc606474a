"""POST /v1/streams/{id}/branch: a new stream that leaves another one at a place of it.

Owns what a branch takes over, and from what it goes on differently. It is queued and answered like
any request of its parent's route.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine import Snapshot, StreamOptions

from ...errors import RequestError
from ...kept.kept import Kept
from ...kept.place import place_of
from ...kept.streams import KeptStream, Origin
from ...lease.waiter import Waiter
from ...schema.control import BranchRequest
from ...service import Service
from ...stream.jobs import CompletionJob, Step
from ..generation import Generation, Wire
from ..keeping import keep
from .overrides import overridden, stored_fields, with_changes

# What an answer reports is the new request's own; nothing of it changes a text.
_REPORTS = (
    "return_probabilities", "return_top_tokens", "return_trace", "max_tokens_per_call",
    "max_new_tokens",
)  # fmt: skip
_NOT_OVERRIDDEN = (
    "prompt",
    "messages",
    "input",
    "store",
    "background",
    "best_of",
    "echo",
    "suffix",
    "input_prefix",
    "input_suffix",
    "input_extra",
)


async def branch(
    service: Service,
    wire: Wire,
    parent: tuple[Kept, KeptStream],
    body: BranchRequest,
    waiter: Waiter,
) -> Kept:
    """Queue it. Raises RequestError, InvalidInputError and what the queue raises."""
    kept, stream = parent
    if body.token_id is not None and body.text is not None:
        raise RequestError("send one of token_id and text", param="token_id")
    overrides = _overrides(body)
    sent = {**stored_fields(kept), "n": 1, "best_of": None, "stream": bool(body.stream)}
    if not body.stream:
        sent.pop("stream_options", None)
    if wire.has_prompt:
        sent["prompt"] = list(stream.prompt_ids)
    asked = {**overrides, "n": body.n or 1}
    request = overridden(wire.body, sent, asked)
    after = before = await wire.generation(service, request, waiter)
    if after.service.model is not service.model:
        raise RequestError(
            f"a branch goes on with the model of its stream, {service.model_id}", param="model"
        )
    if overrides:
        before = await wire.generation(service, overridden(wire.body, sent, {}), waiter)
    place, steps = await place_of(kept, stream, waiter.receive)
    at = place.n_tokens if body.at is None else body.at
    jobs = _jobs(service, body, place.at(at), steps, before, after)
    origin = Origin(stream.id, at)
    once = {**after.answer.once, **branch_fields(origin)}
    answer = replace(after.answer, once=once, jobs=jobs)
    generation = Generation(jobs, answer, service)
    new = await keep(service, wire, request, generation, waiter, origin)
    stream.children += [each.id for each in new.streams]
    service.kept.changed(kept)
    return new


def branch_fields(origin: Origin) -> dict[str, Any]:
    """What its answer says of where it left its parent."""
    return {"branch": {"id": origin.parent, "at": origin.at}}


def _overrides(body: BranchRequest) -> dict[str, Any]:
    extra = dict(body.model_extra or {})
    wrong = next((name for name in _NOT_OVERRIDDEN if name in extra), None)
    if wrong is not None:
        raise RequestError(f"{wrong} cannot be overridden in a branch", param=wrong)
    return extra


def _jobs(
    service: Service,
    body: BranchRequest,
    place: Snapshot,
    steps: Sequence[Step],
    before: Generation,
    after: Generation,
) -> list[CompletionJob]:
    """One per branch, each with other random numbers."""
    overrides = body.model_extra or {}
    given = _given(service, body)
    old, new = before.jobs[0], after.jobs[0]
    settings = with_changes(place.settings, old.settings, new.settings, overrides)
    has_own_way = given is not None or settings.seed != place.settings.seed
    attempt = place.attempt + (0 if has_own_way else 1)
    options = _options(place.options, old.options, new.options, overrides)
    starts = [
        place.changed(settings=settings, options=options, attempt=attempt + k)
        for k in range(len(after.jobs))
    ]
    return [
        replace(
            job,
            input_ids=place.prompt_ids,
            snapshot=start if given is None else given(start),
            inherited=steps,
        )
        for job, start in zip(after.jobs, starts, strict=True)
    ]


def _options(
    current: StreamOptions,
    before: StreamOptions,
    after: StreamOptions,
    overrides: Mapping[str, Any],
) -> StreamOptions:
    changed = with_changes(current, before.without_live(), after.without_live(), overrides)
    is_limited = any(name.startswith(("max_", "n_predict", "num_predict")) for name in overrides)
    reports = {
        name: getattr(after, name) for name in _REPORTS if name != "max_new_tokens" or is_limited
    }
    return replace(changed, **reports)


def _given(service: Service, body: BranchRequest) -> Callable[[Snapshot], Snapshot] | None:
    """What puts the tokens that the body gives behind a place."""
    if body.token_id is not None:
        token_id, n_ids = body.token_id, service.engine.config.vocab_size
        if token_id >= n_ids:
            raise RequestError(
                f"token_id must be below {n_ids}, the size of the vocabulary, not {token_id}",
                param="token_id",
            )
        return lambda place: place.forced(token_id)
    if body.text is not None:
        token_ids = text_ids(service, body.text)
        return lambda place: place.injected(token_ids)
    return None


def text_ids(service: Service, text: str) -> list[int]:
    """The tokens of a text in the middle of another one."""
    return service.engine.tokenizer.encode(text, add_special_tokens=False, parse_special=False)
