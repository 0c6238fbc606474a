"""Pieces of Lark text: markers, literals, and any text up to a marker.

Owns how a marker that is a control token is written in a grammar. Knows no format of calls.
"""

import json
from collections.abc import Sequence

from ..tools import Tool, parameters_of
from .format import Marker, Written

ANY = "/(?s:.*)/"


def is_token(marker: Marker) -> bool:
    return marker.is_control and marker.token_id is not None


def named(marker: Marker) -> str:
    return f"<[{marker.token_id}]>" if is_token(marker) else quoted(marker.text)


def written(markers: Written) -> str:
    return " ".join(map(named, markers))


def until(rule: str, marker: Marker) -> str:
    """A rule for any text up to and including the marker."""
    if is_token(marker):
        return f"{rule}: {ANY} {named(marker)}"
    return f"{rule}[suffix={quoted(marker.text)}]: {ANY}"


def quoted(literal: str) -> str:
    return json.dumps(literal, ensure_ascii=False)


def pattern(literal: str) -> str:
    """A pattern that matches the literal."""
    return "".join(c if c.isalnum() or c in "_<>" else f"\\{c}" for c in literal)


def choice(tools: Sequence[Tool]) -> str:
    """The rule `call`: one of the rules call_0, call_1, ... of the tools."""
    return f"call: {' | '.join(f'call_{i}' for i in range(len(tools)))}"


def arguments(i: int, tool: Tool) -> str:
    """The rule arguments_i: the arguments of a tool as JSON."""
    return f"arguments_{i}: %json {json.dumps(parameters_of(tool), ensure_ascii=False)}"
