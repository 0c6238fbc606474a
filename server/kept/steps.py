"""The steps of a stream as bytes, exact to the last bit, and back.

Owns their compact form: JSON in zlib, without what a result leaves at its default.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

from engine import StopCondition, StreamResult, Suppressed, TokenRecord, TopToken, TraceStep

from ..stream.jobs import Step
from .unpacking import unpacked

_RECORDS = ("tokens", "dropped")
_BYTES, _TOP, _TRACE, _WATCHED = map(
    TokenRecord._fields.index, ("token_bytes", "top", "trace", "watched")
)
_LEVEL = 6


def steps_to_bytes(steps: Sequence[Step]) -> bytes:
    """Some 60 bytes per token without alternatives."""
    rows = [step_row(step) for step in steps]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), _LEVEL)


def steps_from_bytes(data: bytes, n_tokens: int | None = None) -> list[Step]:
    """All of them, or those that hold the first `n_tokens` tokens.

    Raises ValueError, TypeError, KeyError or zlib.error for other bytes.
    """
    steps: list[Step] = []
    n_left = n_tokens
    for row in json.loads(unpacked(data)):
        if n_left is not None and n_left <= 0:
            break
        step = step_of(row)
        steps.append(step)
        if n_left is not None:
            n_left -= len(step.result.tokens) + len(step.result.dropped)
    return steps


def step_row(step: Step) -> list[Any]:
    """As JSON."""
    return [step.choice, step.clock, step.stop_detail, _fields(step.result)]


def step_of(row: Sequence[Any]) -> Step:
    """Back from JSON. Raises like `steps_from_bytes`."""
    choice, clock, detail, fields = row
    return Step(choice, StreamResult(_read(fields)), clock, detail)


def _fields(result: StreamResult) -> dict[str, Any]:
    fields = dict(vars(result))
    for name in _RECORDS:
        if name in fields:
            fields[name] = [_row(record) for record in fields[name]]
    return fields


def _row(record: TokenRecord) -> list[Any]:
    top = [[each[0], _text(each[1]), *each[2:]] for each in record.top]
    return [*record._replace(token_bytes=_text(record.token_bytes), top=top)]  # type: ignore[arg-type]


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    for name in _RECORDS:
        if name in fields:
            fields[name] = tuple([_record(row) for row in fields[name]])
    if "taken_back" in fields:
        fields["taken_back"] = tuple(Suppressed(*each) for each in fields["taken_back"])
    if fields.get("stop_condition"):
        fields["stop_condition"] = StopCondition(*fields["stop_condition"])
    return fields


def _record(row: list[Any]) -> TokenRecord:
    # In place: a branch waits for this, token by token.
    row[_BYTES] = row[_BYTES].encode("latin-1")
    row[_TOP] = tuple(
        [TopToken(each[0], each[1].encode("latin-1"), *each[2:]) for each in row[_TOP]]
    )
    row[_TRACE] = tuple([TraceStep(*each) for each in row[_TRACE]])
    row[_WATCHED] = tuple(row[_WATCHED])
    return TokenRecord._make(row)


def _text(data: bytes) -> str:
    return data.decode("latin-1")
