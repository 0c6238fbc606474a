"""One tool call written as Qwen3-Coder writes it: a tag per argument, its value as plain text.

Owns how those values become JSON. Knows the tools by name and schema.
"""

import json
from collections.abc import Mapping
from typing import Any

from ...text.matcher import StringMatcher
from ..tools import Tool
from .json_call import JsonCall, JsonValue

FUNCTION = "<function="
_PARAMETER = "<parameter="
_END = "</function>"
_ENDS_VALUE = ("\n</parameter>", "</parameter>")
_MAX_NAME = 256
_JSON_TYPES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    dict: ("object",),
    float: ("number",),
    int: ("integer", "number"),
    list: ("array",),
    str: (),  # quotes in plain text are text
    type(None): ("null",),
}


class XmlCall:
    """`<function=f><parameter=k>value</parameter>...</function>`, or the JSON of a JsonCall, or
    `<function=f>{...}</function>`.

    The arguments are returned as a JSON object. A value is text if its schema allows nothing else
    or does not say; then it streams as it is written. Otherwise it is JSON if it can be parsed.
    """

    def __init__(self, tools: Mapping[str, Tool], close: str | None) -> None:
        self.name: str | None = None
        self.is_over = False
        self._tools = tools
        self._close = close
        self._json: JsonCall | None = None
        self._object: JsonValue | None = None  # in place of the parameters
        self._tag = ""  # what was read of it
        self._properties: Mapping[str, Any] = {}
        self._value: _Value | None = None
        self._n_values = 0

    def step(self, character: str) -> str | None:
        if self._json is not None:
            return self._step_json(self._json, character)
        if self._object is not None and not self._object.is_over:
            return character if self._object.step(character) else None
        if self._value is not None:
            return self._step_value(self._value, character)
        if not self._tag and character in " \t\r\n":
            return ""
        if not self._tag and character == "{" and self.name is None:
            self._json = JsonCall(self._close)
            return self._step_json(self._json, character)
        if not self._tag and character == "{" and not self._n_values and self._object is None:
            self._object = JsonValue()
            self._object.step(character)
            return character
        return self._step_tag(character)

    def finish(self) -> str:
        if self._json is not None:
            return self._json.finish()
        return self._value.finish() if self._value is not None else ""

    def _step_json(self, call: JsonCall, character: str) -> str | None:
        text = call.step(character)
        self.name, self.is_over = call.name, call.is_over
        return text

    def _step_tag(self, character: str) -> str | None:
        tag = self._tag + character
        opening = FUNCTION if self.name is None else _PARAMETER
        is_opening = tag.startswith(opening) or opening.startswith(tag)
        if not is_opening and (self.name is None or not _END.startswith(tag)):
            return None
        if len(tag) > len(opening) + _MAX_NAME:
            return None
        self._tag = tag
        if tag == _END:
            self.is_over = True
            if self._object is not None:
                return ""
            return "}" if self._n_values else "{}"
        if not tag.startswith(opening) or character != ">":
            return ""
        self._tag = ""
        name = tag[len(opening) : -1].strip()
        if self.name is None:
            return self._begin(name)
        return self._begin_value(name)

    def _begin(self, name: str) -> str:
        self.name = name
        schema = self._tools[name].parameters if name in self._tools else None
        properties = schema.get("properties") if schema is not None else None
        self._properties = properties if isinstance(properties, Mapping) else {}
        return ""

    def _begin_value(self, key: str) -> str:
        self._value = _Value(self._properties.get(key))
        before = ", " if self._n_values else "{"
        self._n_values += 1
        return f"{before}{json.dumps(key, ensure_ascii=False)}: {self._value.opening}"

    def _step_value(self, value: "_Value", character: str) -> str:
        text = value.step(character)
        if value.is_over:
            self._value = None
        return text


class _Value:
    """The text between the tags of one argument."""

    def __init__(self, schema: object) -> None:
        self.is_over = False
        self._types = _types(schema)
        self._is_text = self._types == {"string"}
        self.opening = '"' if self._is_text else ""
        self._ends = StringMatcher(_ENDS_VALUE)
        self._held: list[str] = []
        self._has_begun = False

    def step(self, character: str) -> str:
        if not self._has_begun:
            self._has_begun = True
            if character == "\n":
                return ""
        end = self._ends.step(character)
        self._held.append(character)
        if end is not None:
            self.is_over = True
            text = "".join(self._held)[: -len(end)]
            return f'{_escaped(text)}"' if self._is_text else self._json(text)
        return self._release(self._ends.n_partial) if self._is_text else ""

    def finish(self) -> str:
        text = "".join(self._held)
        return _escaped(text) if self._is_text else text

    def _release(self, n_held: int) -> str:
        n = len(self._held) - n_held
        text, self._held = "".join(self._held[:n]), self._held[n:]
        return _escaped(text)

    def _json(self, text: str) -> str:
        quoted = f'"{_escaped(text)}"'
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            lowered = text.strip().lower()
            return lowered if lowered in ("true", "false", "null") else quoted
        fits = not self._types or not self._types.isdisjoint(_JSON_TYPES[type(value)])
        return text.strip() if fits or "string" not in self._types else quoted


def _types(schema: object) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say. No schema means text."""
    if schema is None:
        return {"string"}
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    if named is not None:
        return {named} if isinstance(named, str) else set(named)
    if "enum" in schema:
        return {"string"} if all(isinstance(value, str) for value in schema["enum"]) else set()
    parts = schema.get("anyOf") or schema.get("oneOf") or ()
    found = [_types(part) for part in parts]
    return set().union(*found) if all(found) else set()


def _escaped(text: str) -> str:
    """The text as it is written within the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
