"""One tool call with a tag per argument.

Owns the order of the tags, and the forms in which such a model writes JSON instead. Knows the tools
by name and schema, but not the texts around the call.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from ..tools import Tool
from .argument_value import ArgumentValue, properties_of
from .json_call import SPACE, JsonCall, JsonValue
from .tagged_shape import TaggedShape

_MAX_NAME = 256

_Place = Literal["start", "name", "tags", "key"]


class TaggedCall:
    """`name_open name name_end (key_open key key_end value value_end)* end`, or a JSON object in
    place of the arguments, or the JSON of a JsonCall. White space between tags is free.

    The arguments are returned as a JSON object. A value is text if its schema allows nothing else
    or does not say; then it streams as it is written. Otherwise it is JSON if it can be parsed.
    """

    def __init__(self, shape: TaggedShape[str], tools: Mapping[str, Tool]) -> None:
        self.name: str | None = None
        self.is_over = False
        self._tools = tools
        self._name_open = _dense(shape.name_open)
        self._name_end = _dense(shape.name_end)
        self._key_open = _dense(shape.key_open)
        is_told = shape.json_key_end != shape.key_end
        self._key_ends: dict[str, bool | None] = {_dense(shape.key_end): True if is_told else None}
        self._key_ends.setdefault(_dense(shape.json_key_end), False)
        self._value_end = shape.value_end.strip(SPACE)
        self._is_padded = shape.value_end.startswith("\n") and shape.key_end.endswith("\n")
        self._end = _dense(shape.end)
        closing = _dense(shape.closing)
        self._close = closing or self._end
        self._ends = [self._end, *([closing] if closing else [])]
        self._place: _Place = "start" if self._name_open else "name"
        self._head = ""  # a name, a key or a tag, as far as it was read
        self._json: JsonCall | None = None
        self._object: JsonValue | None = None  # in place of the arguments
        self._properties: Mapping[str, Any] = {}
        self._value: ArgumentValue | None = None
        self._n_values = 0

    def step(self, character: str) -> str | None:
        if self._json is not None:
            return self._step_json(self._json, character)
        if self._value is not None:
            return self._step_value(self._value, character)
        if self._object is not None and not self._object.is_over:
            return character if self._object.step(character) else None
        if character in SPACE and (not self._head or _ends_tag(self._head)):
            return ""
        if character == "{" and not self._head and self.name is None:
            self._json = JsonCall(self._close if self._close.startswith("<") else None)
            return self._step_json(self._json, character)
        self._head += character
        if len(self._head) > _MAX_NAME:
            return None
        match self._place:
            case "start":
                return self._step_start()
            case "name":
                return self._step_name()
            case "tags":
                return self._step_tag()
            case "key":
                return self._step_key()

    def finish(self) -> str:
        if self._json is not None:
            return self._json.finish()
        return self._value.finish() if self._value is not None else ""

    def _step_json(self, call: JsonCall, character: str) -> str | None:
        text = call.step(character)
        self.name, self.is_over = call.name, call.is_over
        return text

    def _step_start(self) -> str | None:
        if self._head == self._name_open:
            self._head, self._place = "", "name"
            return ""
        return "" if self._name_open.startswith(self._head) else None

    def _step_name(self) -> str | None:
        ends = (self._name_end, self._key_open, *self._ends, "{")
        end = next((end for end in ends if end and self._head.endswith(end)), None)
        if end is None:
            return ""
        self.name = self._head.removesuffix(end).strip(SPACE)
        self._properties = properties_of(self._tools.get(self.name))
        self._head, self._place = "", "tags"
        if end == self._name_end:
            return ""
        self._head = end
        return self._step_tag()

    def _step_tag(self) -> str | None:
        if self._head == "{" and not self._n_values and self._object is None:
            self._head = ""
            self._object = JsonValue()
            self._object.step("{")
            return "{"
        tags = self._ends if self._object is not None else [self._key_open, *self._ends]
        if self._head not in tags:
            return "" if any(tag.startswith(self._head) for tag in tags) else None
        if self._head == self._key_open:
            self._head, self._place = "", "key"
            return ""
        self.is_over = True
        if self._object is not None:
            return ""
        return "}" if self._n_values else "{}"

    def _step_key(self) -> str:
        end = next((end for end in self._key_ends if self._head.endswith(end)), None)
        if end is None:
            return ""
        key = self._head.removesuffix(end).strip(SPACE)
        self._head, self._place = "", "tags"
        self._value = ArgumentValue(
            self._properties.get(key),
            self._value_end,
            is_padded=self._is_padded,
            is_text=self._key_ends[end],
        )
        before = ", " if self._n_values else "{"
        self._n_values += 1
        return f"{before}{json.dumps(key, ensure_ascii=False)}: {self._value.opening}"

    def _step_value(self, value: ArgumentValue, character: str) -> str:
        text = value.step(character)
        if value.is_over:
            self._value = None
        return text


def _dense(tags: str) -> str:
    """Without the white space around and between tags."""
    return re.sub(r"(?<=[>\ud800-\udfff])\s+", "", tags).strip(SPACE)


def _ends_tag(text: str) -> bool:
    """Whether a tag ends the text; a special token is spelled as a surrogate."""
    return text[-1] == ">" or "\ud800" <= text[-1] <= "\udfff"
