"""What an answer says beyond OpenAI's fields, when the request asks for it by `include`.

Owns the names that may be asked for, and the keys and values that each of them adds. Where they
stand is what official clients bear: per token inside the logprobs, never in a delta, which clients
add up; per choice next to the delta; per request at the top of a chunk. Knows no shape of an answer
beyond that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from engine import Reuse, StreamResult, TopToken

from ..errors import RequestError
from ..stream.jobs import Begun, CompletionJob, Controlled, Progress, Step
from ..stream.score import ScoreJob
from ..stream.stream import CompletionStream
from .usage import milliseconds, timings

# Tokens of the prompt that the explanation of a cache miss quotes.
_N_QUOTED = 8


class Record(Protocol):
    """A token of the prompt or of the completion. One of the prompt lacks some of the fields."""

    @property
    def token_id(self) -> int: ...

    @property
    def token_bytes(self) -> bytes: ...

    @property
    def top(self) -> tuple[TopToken, ...]: ...


class _Tokenizer(Protocol):
    def decode(self, token_ids: Sequence[int]) -> str: ...


_Value = Callable[[Any], Any]


def _optional(name: str) -> _Value:
    """The field of that name; null for a token that has none, as one of the prompt may."""
    return lambda record: getattr(record, name, None)


def _token_bytes(record: Record | TopToken) -> list[int]:
    return list(record.token_bytes)


def _draft(record: Any) -> dict[str, Any] | None:
    origin = getattr(record, "origin", None)
    return {"origin": origin, "rejected_token_id": record.proposed} if origin else None


def _trace(record: Any) -> list[dict[str, Any]] | None:
    steps = getattr(record, "trace", None)
    return None if steps is None else [step._asdict() for step in steps]


def _watched(names: Sequence[str]) -> _Value:
    """The probability of each watch by its name; null for a token of the prompt."""

    def probabilities(record: Any) -> dict[str, float] | None:
        values = getattr(record, "watched", None)
        return None if values is None else dict(zip(names, values, strict=True))

    return probabilities


# Name in `include` -> key in the answer -> its value, of a token record.
_OF_TOKENS: Mapping[str, Mapping[str, _Value]] = {
    "token_ids": {"token_id": attrgetter("token_id")},
    "bytes": {"bytes": _token_bytes},
    "probs": {"p_raw": _optional("p_raw"), "p_sampled": _optional("p_sampled")},
    "rank": {"rank": _optional("rank")},
    "entropy": {"entropy": _optional("entropy")},
    "margin": {"margin": _optional("margin")},
    "kept_mass": {"kept_mass": _optional("kept_mass")},
    "draft": {"draft": _draft},
    "trace": {"trace": _trace},
    "special": {"special": attrgetter("is_special")},
}

# The same of an alternative, for the names that say something of one.
_OF_ALTERNATIVES: Mapping[str, Mapping[str, _Value]] = {
    name: _OF_TOKENS[name] for name in ("token_ids", "bytes", "probs")
}

TOKEN_NAMES = (*_OF_TOKENS, "time")
REQUEST_NAMES = (
    "cache", "speculation", "timings", "progress", "prompt", "stop", "seed", "suppressed", "healed"
)  # fmt: skip

# The longer spelling of a token name, after the Responses API.
_TOKEN_PREFIX = "logprobs."


@dataclass(frozen=True, slots=True)
class Include:
    """What one request asks for."""

    names: frozenset[str]
    of_tokens: tuple[tuple[str, _Value], ...]
    of_alternatives: tuple[tuple[str, _Value], ...]

    @classmethod
    def of(
        cls,
        names: Sequence[str] | None,
        *,
        allowed: Sequence[str] = (*TOKEN_NAMES, *REQUEST_NAMES),
        watches: Sequence[str] = (),
    ) -> "Include":
        """Of the request's `include`; `watches`: the names of its `watch`.

        Raises RequestError for a name that is not `allowed`.
        """
        known = set()
        for index, name in enumerate(names or ()):
            short = name.removeprefix(_TOKEN_PREFIX)
            if short not in allowed or (short != name and short not in TOKEN_NAMES):
                raise RequestError(
                    f"include[{index}] must be one of {', '.join(allowed)}", param="include"
                )
            known.add(short)
        of_tokens = _chosen(_OF_TOKENS, known)
        if watches:
            of_tokens = (*of_tokens, ("watch", _watched(watches)))
        return cls(frozenset(known), of_tokens, _chosen(_OF_ALTERNATIVES, known))

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def wants_events(self) -> bool:
        """Whether a piece in the middle of a choice may have more to say than its tokens."""
        return "suppressed" in self.names or "healed" in self.names

    @property
    def wants_tokens(self) -> bool:
        """Whether each token needs an entry, even if no logprobs were asked for."""
        return bool(self.of_tokens) or "time" in self.names


def token_fields(record: Record, clock: float | None, include: Include) -> dict[str, Any]:
    """More keys for a token's entry in the logprobs of a chat.

    `clock`: seconds from the request's arrival to this token; None for one of the prompt.
    """
    fields = {key: value(record) for key, value in include.of_tokens}
    if "time" in include.names:
        fields["time_ms"] = _time(clock)
    return fields


def with_metadata(
    entries: list[dict[str, Any]], records: Sequence[Record], clock: float | None, include: Include
) -> list[dict[str, Any]]:
    """The entries of a chat's logprobs, one per record, and those in their `top_logprobs`, with
    what is included. `clock` as in `token_fields`.
    """
    if include.wants_tokens:
        for entry, record in zip(entries, records, strict=True):
            entry |= token_fields(record, clock, include)
            for named, top in zip(entry["top_logprobs"], record.top, strict=True):
                named |= top_fields(top, include)
    return entries


def top_fields(top: TopToken, include: Include) -> dict[str, Any]:
    """More keys for an alternative in `top_logprobs` of a chat."""
    return {key: value(top) for key, value in include.of_alternatives}


def token_lists(
    records: Sequence[Record],
    clocks: Sequence[float | None],
    include: Include,
    *,
    name_of: Callable[[TopToken], str],
    n_top: int,
) -> dict[str, list[Any]]:
    """More lists for the older logprobs, parallel to `tokens`, under the keys of `token_fields`.

    `clocks`: one per record, as there. `n_top`: alternatives asked for; because each of them is
    only a name there, `alternatives` says more of them, under that name.
    """
    lists = {key: [value(record) for record in records] for key, value in include.of_tokens}
    if "time" in include.names:
        lists["time_ms"] = [_time(clock) for clock in clocks]
    if n_top and include.of_alternatives:
        lists["alternatives"] = [
            [{"token": name_of(top), **top_fields(top, include)} for top in record.top[:n_top]]
            for record in records
        ]
    return lists


def opening_fields(
    begun: Begun, job: CompletionJob, tokenizer: _Tokenizer, include: Include
) -> dict[str, Any]:
    """Keys of a choice, of the whole one or of its first chunk: how it began."""
    fields: dict[str, Any] = {}
    if "seed" in include:
        fields["seed"] = begun.prefill.seed
    if "cache" in include:
        fields["cache"] = cache_fields(begun.prefill.reuse, job, tokenizer)
    if "prompt" in include:
        token_ids = list(job.input_ids)
        fields["prompt"] = {"text": tokenizer.decode(token_ids), "token_ids": token_ids}
    return fields


def event_fields(
    results: Iterable[StreamResult], tokenizer: _Tokenizer, include: Include
) -> dict[str, Any]:
    """Keys of a choice, of the whole one or of the chunk of `results`: what happened on the way to
    its text. A key is there only if something happened.
    """
    fields: dict[str, Any] = {}
    for result in results:
        if "suppressed" in include and result.taken_back:
            fields.setdefault("suppressed", []).extend(
                {"text": each.text, "n_tokens": each.n_tokens, "n_kept": each.n_kept}
                for each in result.taken_back
            )
        if "healed" in include and result.healed is not None:
            first = (*result.tokens, *result.dropped)[0].token_id
            fields["healed"] = {
                name: {"token_id": token_id, "text": tokenizer.decode([token_id])}
                for name, token_id in (("before", result.healed), ("after", first))
            }
    return fields


def ending_fields(piece: Step, include: Include) -> dict[str, Any]:
    """Keys of a choice, of the whole one or of the chunk with its `finish_reason`: why it ended.

    `piece`: its last one.
    """
    if "stop" not in include:
        return {}
    result = piece.result
    condition = result.stop_condition if result.eos_reason == "stop_when" else None
    detail = {
        "kind": condition.name if condition else piece.stop_detail or result.eos_reason,
        "value": condition.value if condition else None,
        "string": result.stop_string,
        "token_id": result.stop_token_id,
        "dropped_text": result.dropped_text,
        "dropped_token_ids": [record.token_id for record in result.dropped],
    }
    return {"stop_detail": detail}


def closing_fields(stream: CompletionStream, include: Include) -> dict[str, Any]:
    """Keys of the whole answer, or of the last chunk of a stream, which has no choices."""
    fields: dict[str, Any] = {}
    if "timings" in include:
        fields["timings"] = timings(stream.counts, stream.clocks)
    if "speculation" in include:
        fields["speculation"] = _speculation(stream)
    return fields


def progress_fields(progress: Progress, n_prompt: int) -> dict[str, Any]:
    """Keys of a chunk without choices that is sent while a prompt of `n_prompt` tokens is computed.

    The remaining time is estimated from the pace so far.
    """
    n_left, n_computed = n_prompt - progress.processed, progress.processed - progress.cached
    elapsed = progress.clock - progress.began
    return {
        "prompt_progress": {
            "index": progress.choice,
            "total": n_prompt,
            "cache": progress.cached,
            "processed": progress.processed,
            "time_ms": milliseconds(elapsed),
            "eta_ms": milliseconds(elapsed * n_left / n_computed) if n_computed else None,
        }
    }


def control_fields(controlled: Controlled) -> dict[str, Any]:
    """Keys of a chunk without choices: what was done with the stream between two tokens."""
    said = {"index": controlled.choice, "action": controlled.kind, **controlled.arguments}
    if controlled.pieces is not None:
        said["text_characters"] = sum(len(step.result.chunk) for step in controlled.pieces)
    said["completion_tokens"] = controlled.n_tokens
    return {"control": said}


def _chosen(
    table: Mapping[str, Mapping[str, _Value]], names: set[str]
) -> tuple[tuple[str, _Value], ...]:
    return tuple(item for name, keys in table.items() if name in names for item in keys.items())


def _time(clock: float | None) -> float | None:
    return None if clock is None else milliseconds(clock)


def cache_fields(
    reuse: Reuse, job: CompletionJob | ScoreJob, tokenizer: _Tokenizer
) -> dict[str, Any]:
    """What was reused and why not more; around a difference, both texts.

    The cached text may be another client's, so it shows only if the request has a cache salt.
    """
    at = reuse.mismatch_at
    got = None if at is None else tokenizer.decode(job.input_ids[at : at + _N_QUOTED])
    is_own = bool(job.options.isolation_key) and at is not None
    return {
        "reused": reuse.n_reused,
        "wanted": reuse.n_wanted,
        "source": reuse.source,
        "reason": reuse.reason,
        "mismatch_at": at,
        "got": got,
        "known": tokenizer.decode(reuse.other_ids) if is_own else None,
    }


def _speculation(stream: CompletionStream) -> dict[str, Any]:
    counts = stream.counts
    by_origin: dict[str, dict[str, int]] = {}
    for end in stream.ends:
        for origin, count in end.drafts.items():
            total = by_origin.setdefault(origin, {"rounds": 0, "judged": 0, "accepted": 0})
            total["rounds"] += count.rounds
            total["judged"] += count.drafted
            total["accepted"] += count.accepted
    return {
        "drafted": counts.n_drafted,
        "accepted": counts.n_accepted,
        "acceptance": counts.n_accepted / counts.n_drafted if counts.n_drafted else None,
        "by_origin": by_origin,
    }
