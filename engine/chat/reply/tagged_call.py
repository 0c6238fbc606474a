"""One tool call with a tag per argument, in tags that were read off the chat template.

Owns the order of those tags. Knows the tools by name and schema, but not the texts around the call.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ..tools import Tool
from .argument_value import ArgumentValue, properties_of
from .json_call import SPACE, JsonValue
from .tagged_shape import TaggedShape

_MAX_NAME = 256


class TaggedCall:
    """`name name_end (key_open key key_end value value_end)* end`, or a JSON object in place of the
    arguments. The arguments are returned as a JSON object. White space between tags is free.
    """

    def __init__(self, shape: TaggedShape, tools: Mapping[str, Tool]) -> None:
        self.name: str | None = None
        self.is_over = False
        self._tools = tools
        self._name_end = _dense(shape.name_end)
        self._key_open = _dense(shape.key_open)
        self._key_ends = {
            _dense(shape.key_end): None if shape.json_key_end == shape.key_end else True
        }
        self._key_ends.setdefault(_dense(shape.json_key_end), False)
        self._value_end = shape.value_end.strip(SPACE)
        self._is_padded = shape.value_end.startswith("\n") and shape.key_end.endswith("\n")
        self._end = _dense(shape.end)
        self._head = ""  # a name, a key or a tag, as far as it was read
        self._is_in_key = False
        self._properties: Mapping[str, Any] = {}
        self._value: ArgumentValue | None = None
        self._object: JsonValue | None = None  # in place of the arguments
        self._n_values = 0

    def step(self, character: str) -> str | None:
        if self._value is not None:
            return self._step_value(self._value, character)
        if self._object is not None and not self._object.is_over:
            return character if self._object.step(character) else None
        if character in SPACE and (not self._head or self._head.endswith(">")):
            return ""
        self._head += character
        if len(self._head) > _MAX_NAME:
            return None
        if self.name is None:
            return self._step_name()
        return self._step_key() if self._is_in_key else self._step_tag(character)

    def finish(self) -> str:
        return self._value.finish() if self._value is not None else ""

    def _step_name(self) -> str:
        ends = (self._name_end, self._key_open, self._end)
        end = next((end for end in ends if end and self._head.endswith(end)), None)
        if end is None:
            return ""
        self.name = self._head.removesuffix(end).strip(SPACE)
        self._properties = properties_of(self._tools.get(self.name))
        self._head = ""
        return "" if end == self._name_end else self._take_tag(end)

    def _step_tag(self, character: str) -> str | None:
        if self._head == "{" and not self._n_values and self._object is None:
            self._object = JsonValue()
            self._object.step(character)
            self._head = ""
            return character
        tags = [self._end] if self._object is not None else [self._key_open, self._end]
        if self._head in tags:
            return self._take_tag(self._head)
        return "" if any(tag.startswith(self._head) for tag in tags) else None

    def _take_tag(self, tag: str) -> str:
        self._head = ""
        if tag == self._key_open:
            self._is_in_key = True
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
        self._head, self._is_in_key = "", False
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
    return re.sub(r">\s+", ">", tags).strip(SPACE)
