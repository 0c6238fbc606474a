"""One tool call written as Qwen3-Coder writes it: a tag per argument, its value as plain text.

Owns its tags, and the forms in which such a model writes JSON instead. Knows the tools by name and schema.
"""

import json
from collections.abc import Mapping
from typing import Any

from ..tools import Tool
from .argument_value import ArgumentValue, properties_of
from .json_call import JsonCall, JsonValue

FUNCTION = "<function="
_PARAMETER = "<parameter="
_END = "</function>"
_END_OF_VALUE = "</parameter>"
_MAX_NAME = 256


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
        self._value: ArgumentValue | None = None
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
        self._properties = properties_of(self._tools.get(name))
        return ""

    def _begin_value(self, key: str) -> str:
        self._value = ArgumentValue(self._properties.get(key), _END_OF_VALUE, is_padded=True)
        before = ", " if self._n_values else "{"
        self._n_values += 1
        return f"{before}{json.dumps(key, ensure_ascii=False)}: {self._value.opening}"

    def _step_value(self, value: ArgumentValue, character: str) -> str:
        text = value.step(character)
        if value.is_over:
            self._value = None
        return text
