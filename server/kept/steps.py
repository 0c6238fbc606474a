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
_LEVEL = 6


def steps_to_bytes(steps: Sequence[Step]) -> bytes:
    """Some 60 bytes per token without alternatives."""
    rows = [step_row(step) for step in steps]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), _LEVEL)


def steps_from_bytes(data: bytes) -> list[Step]:
    """Raises ValueError, TypeError, KeyError or zlib.error for other bytes."""
    return [step_of(row) for row in json.loads(unpacked(data))]


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
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Any) -> Any:
    if name in _RECORDS:
        return tuple(_record(row) for row in value)
    if name == "taken_back":
        return tuple(Suppressed(*each) for each in value)
    return StopCondition(*value) if name == "stop_condition" and value else value


def _record(row: Sequence[Any]) -> TokenRecord:
    record = TokenRecord(*row)
    top: Sequence[Sequence[Any]] = record.top
    return record._replace(
        token_bytes=row[1].encode("latin-1"),
        top=tuple(TopToken(each[0], each[1].encode("latin-1"), *each[2:]) for each in top),
        trace=tuple(TraceStep(*each) for each in record.trace),
        watched=tuple(record.watched),
    )


def _text(data: bytes) -> str:
    return data.decode("latin-1")
