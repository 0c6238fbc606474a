"""Grammars of forced calls with a tag per argument.

Owns their Lark text. Arguments whose schema cannot be enforced between tags are one JSON object in
their place, which the models understand and a ReplyReader reads.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from ..tools import Tool, parameters_of
from .argument_schema import Json, Literals, Member, Text, members_of
from .json_call import SPACE
from .lark_text import (
    arguments,
    as_json,
    choice,
    counted,
    is_token,
    named,
    quoted,
    start,
    until,
    without,
    written,
)
from .tagged_shape import TaggedShape
from .tool_format import ToolFormat
from .written import Marker, Written


class _ValueEnd(NamedTuple):
    """The text after a value."""

    lead: str
    """White space that is no part of the value."""
    close: Marker
    trail: Written


def calls(form: ToolFormat, tools: Sequence[Tool], *, required: bool, parallel: bool) -> list[str]:
    """Like `tool_constraint`."""
    tags = form.tags
    assert tags is not None
    several = "call"
    if parallel and tags.between is not None:
        several = f"call ({written(tags.between)} call)*"
    rest = _after(form.open, (*tags.opening, *tags.name_open))
    first = f"{written(rest)} {several} {written(tags.closing)}".strip()
    never = tags.name_open[0] if tags.name_open else None
    lines = [
        start(first, "", form, required=required, parallel=False, never=never),
        choice(tools),
    ]
    for i, tool in enumerate(tools):
        lines += _call(i, tool, tags)
    return lines


def _call(i: int, tool: Tool, tags: TaggedShape[Written]) -> list[str]:
    schema = parameters_of(tool)
    members = members_of(schema, schema)
    rules = None if members is None else _members(i, members, tags)
    head = f"call_{i}: {quoted(tool.name)} {written(tags.name_end)}"
    if members is None or rules is None:
        return [f"{head} arguments_{i} {written(tags.end)}", arguments(i, tool)]
    values = " ".join(
        f"value_{i}_{j}" if member.is_required else f"value_{i}_{j}?"
        for j, member in enumerate(members)
    )
    return [f"{head} {values} {written(tags.end)}", *rules]


def _members(i: int, members: list[Member], tags: TaggedShape[Written]) -> list[str] | None:
    """The rules value_i_0, value_i_1, ...; None if a value would end its own tag."""
    end = _value_end(tags)
    close = f"{quoted(end.lead) if end.lead else ''} {named(end.close)} {written(end.trail)}"
    text, other = written(tags.key_end), written(tags.json_key_end)
    rules: list[str] = []
    for j, (key, value, _) in enumerate(members):
        rule = f"value_{i}_{j}: {written(tags.key_open)} {quoted(key)}"
        match value:
            case Text():
                rules.append(f"{rule} {text} text_{i}_{j} {written(end.trail)}")
                rules += _text(f"text_{i}_{j}", value, end)
            case Literals(values):
                texts = [each for each in values if isinstance(each, str)]
                if any(end.close.text in each for each in texts):
                    return None
                options = [f"{text} {quoted(each) if each else ''}" for each in texts]
                options += [
                    f"{other} {quoted(json.dumps(each, ensure_ascii=False))}"
                    for each in values
                    if not isinstance(each, str)
                ]
                rules.append(f"{rule} ({' | '.join(options)}) {close}")
            case Json(schema):
                rules.append(f"{rule} {other} json_{i}_{j} {close}")
                rules.append(f"json_{i}_{j}: {as_json(schema)}")
    return rules


def _text(rule: str, value: Text, end: _ValueEnd) -> list[str]:
    """A text and what ends it, without the trail."""
    if value.is_free:
        return [until(rule, end.close)]
    # The line break before the tag is no character of the value.
    lead = "\\n" if end.lead else ""
    terminal = rule.upper()
    limited = without(end.close, f"/{counted(value)}{lead}/")
    return [until(rule, end.close, terminal), f"{terminal}: {limited}"]


def _value_end(tags: TaggedShape[Written]) -> _ValueEnd:
    first, *trail = tags.value_end
    is_padded = bool(tags.key_end) and tags.key_end[-1].text.endswith("\n")
    lead = "\n" if is_padded and first.text.startswith("\n") else ""
    if not first.text.strip(SPACE):
        first, *trail = trail
    if is_token(first):
        return _ValueEnd(lead, first, tuple(trail))
    tag = first.text.strip(SPACE)
    after = first.text[first.text.index(tag) + len(tag) :]
    return _ValueEnd(lead, Marker(tag), ((Marker(after),) if after else ()) + tuple(trail))


def _after(opening: Marker, texts: Written) -> Written:
    """What follows the marker at the beginning of the texts, and white space before it."""
    first, *rest = texts
    if not first.text.strip(SPACE):
        return _after(opening, tuple(rest))
    after = first.text.lstrip(SPACE).removeprefix(opening.text)
    return ((Marker(after),) if after else ()) + tuple(rest)
