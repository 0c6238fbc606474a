"""Pieces of Lark text: markers, literals, any text up to a marker, and where calls may begin.

Owns how a marker that is a control token is written in a grammar. Knows no format of calls.
"""

import json
from collections.abc import Sequence

from ..tools import Tool, parameters_of
from .argument_schema import Text
from .tool_format import ToolFormat
from .written import Marker, Written

ANY = "/(?s:.*)/"


def is_token(marker: Marker) -> bool:
    return marker.is_control and marker.token_id is not None


def named(marker: Marker) -> str:
    return f"<[{marker.token_id}]>" if is_token(marker) else quoted(marker.text)


def written(markers: Written) -> str:
    return " ".join(map(named, markers))


def until(rule: str, marker: Marker, text: str = ANY) -> str:
    """A rule for any text up to and including the marker. `text`: a pattern or a terminal."""
    if is_token(marker):
        return f"{rule}: {text} {named(marker)}"
    return f"{rule}[suffix={quoted(marker.text)}]: {text}"


def without(marker: Marker | None, text: str = ANY) -> str:
    """The pattern `text`, where the marker must not occur in it."""
    if marker is None or is_token(marker):
        return text
    return rf"{text} & ~/(?s:.*){pattern(marker.text)}(?s:.*)/"


def counted(value: Text) -> str:
    """A pattern for a text of so many characters."""
    return f"(?s:.{{{value.least},{'' if value.most is None else value.most}}})"


def quoted(literal: str) -> str:
    return json.dumps(literal, ensure_ascii=False)


def pattern(literal: str) -> str:
    """A pattern that matches the literal."""
    plain = (c.isalnum() or c in "_<>" or not c.isascii() for c in literal)
    return "".join(c if is_plain else f"\\{c}" for c, is_plain in zip(literal, plain, strict=True))


def choice(tools: Sequence[Tool]) -> str:
    """The rule `call`: one of the rules call_0, call_1, ... of the tools."""
    return f"call: {' | '.join(f'call_{i}' for i in range(len(tools)))}"


def arguments(i: int, tool: Tool) -> str:
    """The rule arguments_i: the arguments of a tool as JSON."""
    return f"arguments_{i}: {as_json(parameters_of(tool))}"


def as_json(schema: object) -> str:
    return f"%json {json.dumps(schema, ensure_ascii=False)}"


def start(
    first: str,
    further: str,
    form: ToolFormat,
    *,
    required: bool,
    parallel: bool,
    never: Marker | None = None,
) -> str:
    """The rule `start`, with those that it needs. `first`: what follows the first opening tag;
    `further`: a whole call after that; `never`: what no text before the calls may hold.
    """
    calls = f"{first} ({further})*" if parallel else first
    opening = named(form.open)
    if required:
        return f"start: {opening} {calls}"
    before = f"BEFORE: {without(never)}"
    if is_token(form.open):
        return f"start: BEFORE ({opening} {calls})?\n{before}"
    alone = f"ALONE: {without(form.open, without(never))}"
    return f"start: ALONE | free {calls}\n{until('free', form.open, 'BEFORE')}\n{before}\n{alone}"
