"""The steps of a stream as bytes, exact to the last bit, and back.

Owns their compact form: JSON in zlib, without what a result leaves at its default. The numbers of
all tokens lie in columns, because a branch waits until they are read.
"""

import base64
import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from engine import StopCondition, StreamResult, Suppressed, TokenRecord, TopToken, TraceStep

from ..stream.jobs import Step
from .unpacking import unpacked

_RECORDS = ("tokens", "dropped")
# The fields of a token that are floats: eight bytes each, in base64.
_FLOATS = frozenset(["logprob", "p_raw", "p_sampled", "entropy", "margin", "kept_mass"])
_LEVEL = 6
# Of steps as JSON.
N_PARTS = 1 + len(TokenRecord._fields)


def steps_to_bytes(steps: Sequence[Step]) -> bytes:
    """Some 50 bytes per token without alternatives."""
    return zlib.compress(json.dumps(steps_to_json(steps), separators=(",", ":")).encode(), _LEVEL)


def steps_from_bytes(data: bytes) -> list[Step]:
    """Raises ValueError, TypeError, LookupError or zlib.error for other bytes."""
    return steps_from_json(json.loads(unpacked(data)))


def steps_to_json(steps: Sequence[Step]) -> list[Any]:
    """N_PARTS values: what the steps have besides their tokens, and a column per field of these."""
    records: list[TokenRecord] = []
    rows = [[each.choice, each.clock, each.stop_detail, _row(each, records)] for each in steps]
    names = TokenRecord._fields
    return [rows, *(_packed(name, [getattr(each, name) for each in records]) for name in names)]


def steps_from_json(values: Sequence[Any]) -> list[Step]:
    """Like `steps_from_bytes`."""
    rows, *columns = values
    named = zip(TokenRecord._fields, columns, strict=True)
    records = map(
        TokenRecord._make, zip(*(_unpacked(name, column) for name, column in named), strict=True)
    )
    steps: list[Step] = []
    for choice, clock, detail, fields in rows:
        for name in _RECORDS:
            if name in fields:
                fields[name] = _taken(records, fields[name])
        steps.append(Step(choice, StreamResult(_read(fields)), clock, detail))
    return steps


def _taken(records: Iterator[TokenRecord], n: int) -> tuple[TokenRecord, ...]:
    taken = tuple(islice(records, n))
    if len(taken) < n:
        raise ValueError("more tokens than records")
    return taken


def _row(step: Step, records: list[TokenRecord]) -> dict[str, Any]:
    """What a step has besides its tokens, whose number stands for them; they join `records`."""
    fields = dict(vars(step.result))
    for name in _RECORDS:
        if name in fields:
            records += fields[name]
            fields[name] = len(fields[name])
    return fields


def _read(fields: dict[str, Any]) -> dict[str, Any]:
    if "taken_back" in fields:
        fields["taken_back"] = tuple(Suppressed(*each) for each in fields["taken_back"])
    if fields.get("stop_condition"):
        fields["stop_condition"] = StopCondition(*fields["stop_condition"])
    return fields


def _packed(name: str, values: list[Any]) -> Any:
    """A column as JSON."""
    if name in _FLOATS:
        return base64.b64encode(array("d", values).tobytes()).decode()
    if name == "token_bytes":
        return [_text(data) for data in values]
    if name == "top":
        return [[[each[0], _text(each[1]), *each[2:]] for each in top] for top in values]
    return values


def _unpacked(name: str, column: Any) -> Iterable[Any]:
    """Its values."""
    if name in _FLOATS:
        numbers = array("d")
        numbers.frombytes(base64.b64decode(column))
        return numbers
    if name == "token_bytes":
        return (text.encode("latin-1") for text in column)
    if name == "top":
        return (tuple([_top(*each) for each in top]) if top else () for top in column)
    if name == "trace":
        return (tuple([TraceStep(*each) for each in trace]) if trace else () for trace in column)
    values: Iterable[Any] = map(tuple, column) if name == "watched" else column
    return values


def _top(token_id: int, text: str, *numbers: float) -> TopToken:
    return TopToken(token_id, text.encode("latin-1"), *numbers)


def _text(data: bytes) -> str:
    return data.decode("latin-1")
