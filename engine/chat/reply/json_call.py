"""One tool call written as JSON, read character by character.

Owns the place of a character in the JSON. Linear in its length: nothing is parsed twice. Of the
tags around the call it knows only the one that may cut it short. Knows no tools.
"""

import json
from typing import Literal, Protocol

SPACE = " \t\r\n"
_ARGUMENTS = ("arguments", "parameters")
# Keys that may come before the name; other JSON is not a call.
_EARLY_KEYS = ("id", "name", "type", *_ARGUMENTS)

_Place = Literal["start", "key", "colon", "value", "after_value"]


class CallReader(Protocol):
    """Reads one call."""

    name: str | None
    """None until it is known."""
    is_over: bool
    """Whether the call ended with the last character."""

    def step(self, character: str) -> str | None:
        """What the next character adds to the text of the arguments. None if it is not part of the
        call; then it is not consumed.
        """

    def finish(self) -> str:
        """The rest of the arguments when the text ends here."""


class JsonCall:
    """`{"name": "f", "arguments": {...}}`; the keys in any order, further ones ignored.

    Arguments in a JSON string are the content of the string. A call without arguments has "{}".
    """

    def __init__(self, close: str | None = None, *, may_begin_list: bool = False) -> None:
        """`close`: a tag, beginning with "<", that ends the call even if brackets are open.
        `may_begin_list`: whether the bracket of a list may come first.
        """
        self.begins_list = False
        self._may_begin_list = may_begin_list
        self.name: str | None = None
        self.is_over = False
        self._place: _Place = "start"
        self._key = ""
        self._value: JsonValue | None = None
        self._literal: list[str] = []  # a key, a name, or arguments in a string
        self._has_arguments = False
        self._close = close
        self._n_close = 0  # characters of `close` that were read

    def step(self, character: str) -> str | None:
        if self._n_close or (character == "<" and self._may_close()):
            return self._step_close(character) if self.name is not None else None
        if self._value is not None:
            return self._step_value(self._value, character)
        if character in SPACE:
            return ""
        if self._place == "start" and character == "{":
            self._place = "key"
        elif self._place == "start" and character == "[" and self._may_begin_list:
            self._may_begin_list, self.begins_list = False, True
        elif self._place == "key" and character == '"':
            self._begin_value(character)
        elif self._place == "colon" and character == ":":
            self._place = "value"
        elif self._place == "value" and character not in ",:]}":
            return self._begin_value(character)
        elif self._place == "after_value" and character == ",":
            self._place = "key"
        elif self._place in ("key", "after_value") and character == "}":
            return self._end()
        else:
            return None
        return ""

    def finish(self) -> str:
        held = "".join(self._literal) if self._is_argument else ""
        return held + (self._close or "")[: self._n_close]

    @property
    def _is_argument(self) -> bool:
        return self._place == "value" and self._key in _ARGUMENTS

    def _may_close(self) -> bool:
        return self._close is not None and not (self._value and self._value.in_string)

    def _step_close(self, character: str) -> str | None:
        assert self._close is not None
        if character == self._close[self._n_close]:
            self._n_close += 1
            if self._n_close == len(self._close):
                self._n_close = 0
                return self._end()
            return ""
        if self._value is None or not self._is_argument:
            return None
        wrong, self._n_close = self._close[: self._n_close], 0
        return wrong + (self.step(character) or "")

    def _begin_value(self, character: str) -> str | None:
        self._value = JsonValue()
        self._literal = []
        if self._is_argument:
            self._has_arguments = True
        return self._step_value(self._value, character)

    def _step_value(self, value: "JsonValue", character: str) -> str | None:
        if not value.step(character):  # a number ended before it
            self._value = None
            self._place = "after_value"
            return self.step(character)
        shown = ""
        if self._is_argument and not value.is_string:
            shown = character
        elif self._place == "key" or self._key == "name" or self._is_argument:
            self._literal.append(character)
        if value.is_over:
            self._value = None
            return self._end_value(value, shown)
        return shown

    def _end_value(self, value: "JsonValue", shown: str) -> str | None:
        literal = "".join(self._literal)
        self._literal = []
        if self._place == "key":
            self._key = _string(literal)
            self._place = "colon"
            known = self.name is not None or self._key in _EARLY_KEYS
            return "" if known else None
        if self._is_argument and value.is_string:
            shown = _string(literal)
        elif self._key == "name" and self.name is None:
            if not value.is_string:
                return None
            self.name = _string(literal)
        self._place = "after_value"
        return shown

    def _end(self) -> str:
        self.is_over = True
        return "" if self._has_arguments else "{}"


class JsonValue:
    """Finds the end of a JSON value."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_string = False
        self.is_over = False
        """Whether the last character ended it; a number ends only with the character after it."""
        self.in_string = False
        self._is_escaped = False
        self._depth = 0

    def step(self, character: str) -> bool:
        """Whether the character is part of the value; if not, it is not consumed."""
        if self.in_string:
            self._step_string(character)
        elif character == '"':
            self.in_string = True
            self.is_string = self.is_string or not self.has_begun
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            if not self._depth:
                return False
            self._depth -= 1
            self.is_over = not self._depth
        elif not self._depth and (character in SPACE or character == ","):
            return False
        self.has_begun = True
        return True

    def _step_string(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self.in_string = False
            self.is_over = not self._depth


def _string(literal: str) -> str:
    """The content of a JSON string; its raw text if it is malformed."""
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return literal[1:-1]
    assert isinstance(value, str)
    return value
