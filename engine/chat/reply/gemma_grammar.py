"""Grammars of forced calls as Gemma 4 writes them.

Owns the Lark text of its objects. Arguments whose schema cannot be enforced there are one JSON
object in their place, which a ReplyReader reads as well.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..tools import Tool, parameters_of
from .argument_schema import SCALARS, Json, Literals, Member, Text, Value, members_of, value_of
from .argument_value import types_of
from .lark_text import (
    arguments,
    as_json,
    choice,
    counted,
    named,
    quoted,
    start,
    until,
    without,
)
from .tool_format import ToolFormat
from .written import Marker

_MAX_DEPTH = 16  # schemas may refer to themselves


def calls(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    """Like `tool_constraint`."""
    assert form.close is not None
    (quote,) = form.inner
    rest = f'"call:" call {named(form.close)}'
    further = f"{named(form.open)} {rest}"
    lines = [start(rest, further, form, required=required, parallel=parallel), choice(tools)]
    for i, tool in enumerate(tools):
        head = f"call_{i}: {quoted(tool.name)}"
        rules = _Rules(f"value_{i}", quote, parameters_of(tool))
        if rules.arguments is None:
            lines += [f"{head} arguments_{i}", arguments(i, tool)]
        else:
            lines += [f"{head} {rules.arguments}", *rules.lines]
    return lines


class _Rules:
    """The rules of one tool's arguments."""

    def __init__(self, prefix: str, quote: Marker, schema: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self._prefix = prefix
        self._quote = quote
        self._root = schema
        self._n_rules = 0
        self.arguments = self._object(schema, 0)
        """An expression for the object; None if it must be JSON."""

    def _object(self, schema: Mapping[str, Any], depth: int) -> str | None:
        members = members_of(schema, self._root)
        if members is None:
            return None
        written: list[str] = []
        for member in members:
            value = self._value(member.value, depth + 1)
            if value is None:
                return None
            written.append(f"{quoted(member.key + ':')} {value}")
        return f'"{{" {self._joined(members, written)} "}}"'

    def _joined(self, members: Sequence[Member], written: Sequence[str]) -> str:
        """Members with commas between them; those that are not required may be missing."""
        first: list[str] = []  # what may come first, the last member before the others
        rest = ""  # what may follow the member before
        for member, text in zip(reversed(members), reversed(written), strict=True):
            name = self._rule(f"{text} {rest}")
            if member.is_required:
                first, rest = [name], f'"," {name}'
            else:
                first.append(name)
                rest = self._rule(f'"," {name} | {rest}') if rest else f'("," {name})?'
        is_required = any(member.is_required for member in members)
        return f"({' | '.join(first)}){'' if is_required else '?'}" if first else ""

    def _value(self, value: Value, depth: int) -> str | None:
        quote = named(self._quote)
        match value:
            case Text():
                return self._text(value)
            case Literals(values):
                texts = [each for each in values if isinstance(each, str)]
                if any(self._quote.text in each for each in texts):
                    return None
                options = [f"{quote} {quoted(each) if each else ''} {quote}" for each in texts]
                options += [
                    quoted(json.dumps(each, ensure_ascii=False))
                    for each in values
                    if not isinstance(each, str)
                ]
                return f"({' | '.join(options)})"
            case Json(schema):
                return self._json(schema, depth)

    def _json(self, schema: dict[str, Any], depth: int) -> str | None:
        types = types_of(schema)
        if types <= SCALARS:
            return self._rule(as_json(schema))
        if depth > _MAX_DEPTH:
            return None
        if types == {"object"}:
            return self._object(schema, depth)
        own = set(schema) - {"$defs", "definitions"}
        if types != {"array"} or own != {"type", "items"}:
            return None
        items = value_of(schema["items"], self._root)
        item = None if items is None else self._value(items, depth + 1)
        if item is None:
            return None
        name = self._rule(item)
        return f'"[" ({name} ("," {name})*)? "]"'

    def _text(self, value: Text) -> str:
        name = self._rule()
        if value.is_free:
            self.lines.append(until(name, self._quote))
        else:
            terminal = name.upper()
            self.lines.append(until(name, self._quote, terminal))
            self.lines.append(f"{terminal}: {without(self._quote, f'/{counted(value)}/')}")
        return f"{named(self._quote)} {name}"

    def _rule(self, body: str | None = None) -> str:
        """The name of a new rule."""
        self._n_rules += 1
        name = f"{self._prefix}_{self._n_rules}"
        if body is not None:
            self.lines.append(f"{name}: {body}")
        return name
