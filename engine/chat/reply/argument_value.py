"""The value of one argument that a model wrote between tags, as JSON.

Owns which values are text and which are JSON: the schema of the tool says it. Knows no tags but the
one that ends the value.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from ...text.matcher import StringMatcher
from ..tools import Tool

_JSON_TYPES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    dict: ("object",),
    float: ("number",),
    int: ("integer", "number"),
    list: ("array",),
    str: (),  # quotes in plain text are text
    type(None): ("null",),
}

DEFINITIONS = ("$defs", "definitions")
_MAX_REFERENCES = 8  # one after another; more may be a circle


class ArgumentValue:
    """The text between the tags of one argument, as the text of a JSON value.

    A value is text if its schema allows nothing else or does not say; then it streams as it is
    written. Otherwise it is JSON if it can be parsed.
    """

    def __init__(
        self, schema: object, end: str, *, is_padded: bool, is_text: bool | None = None
    ) -> None:
        """`end`: the tag after the value. `is_padded`: whether a line break stands around the
        value. `is_text`: None if only the schema says.
        """
        self.is_over = False
        self._types = types_of(schema)
        self._texts = texts_of(schema)
        self._is_text = self._types == {"string"} if is_text is None else is_text
        self.opening = '"' if self._is_text else ""
        self._ends = StringMatcher((f"\n{end}", end) if is_padded else (end,))
        self._is_padded = is_padded
        self._held: list[str] = []
        self._has_begun = False

    def step(self, character: str) -> str:
        if not self._has_begun:
            self._has_begun = True
            if character == "\n" and self._is_padded:
                return ""
        end = self._ends.step(character)
        self._held.append(character)
        if end is not None:
            self.is_over = True
            text = "".join(self._held)[: -len(end)]
            return f'{escaped(text)}"' if self._is_text else self._json(text)
        return self._release(self._ends.n_partial) if self._is_text else ""

    def finish(self) -> str:
        text = "".join(self._held)
        return escaped(text) if self._is_text else text

    def _release(self, n_held: int) -> str:
        n = len(self._held) - n_held
        text, self._held = "".join(self._held[:n]), self._held[n:]
        return escaped(text)

    def _json(self, text: str) -> str:
        quoted = f'"{escaped(text)}"'
        if text in self._texts:
            return quoted
        try:
            value = read_json(text)
        except (ValueError, RecursionError):
            lowered = text.strip().lower()
            return lowered if lowered in ("true", "false", "null") else quoted
        fits = not self._types or not self._types.isdisjoint(_JSON_TYPES[type(value)])
        return text.strip() if fits or "string" not in self._types else quoted


def types_of(schema: object) -> set[str]:
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
    found = [types_of(part) for part in parts]
    return set().union(*found) if all(found) else set()


def texts_of(schema: object) -> Collection[str]:
    """The texts that a schema lists."""
    if not isinstance(schema, Mapping):
        return ()
    listed = schema.get("enum", [schema.get("const")])
    return [value for value in listed if isinstance(value, str)]


def properties_of(tool: Tool | None) -> Mapping[str, Any]:
    """The schemas of a tool's arguments, by name; those that are references, followed."""
    schema = tool.parameters if tool is not None else None
    properties = schema.get("properties") if schema is not None else None
    if schema is None or not isinstance(properties, Mapping):
        return {}
    return {key: followed(value, schema) for key, value in properties.items()}


def followed(schema: Any, root: Mapping[str, Any]) -> Any:
    """The definition that a schema refers to, if it is one of the root's; else the schema."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        place, _, name = str(reference).removeprefix("#/").partition("/")
        definitions = root.get(place) if place in DEFINITIONS else None
        if not isinstance(definitions, Mapping) or name not in definitions:
            break
        schema = definitions[name]
    return schema


def read_json(text: str) -> Any:
    """Raises ValueError, or RecursionError, if it is no JSON; Python's own constants are none."""
    return json.loads(text, parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def escaped(text: str) -> str:
    """The text as it is written within the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
