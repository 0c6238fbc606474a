"""One tool call written as a name followed by a JSON object.

Owns where the name ends. Knows the text between the two, which was read off the chat template, but
not the texts around the call.
"""

from .json_call import SPACE, JsonValue

_MAX_NAME = 256


class NamedCall:
    """`name middle {...}`; white space around each of them is free."""

    def __init__(self, middle: str) -> None:
        """`middle`: not empty; if it is only white space, its first character ends the name."""
        self.name: str | None = None
        self.is_over = False
        self._middle = middle.strip(SPACE) or middle[0]
        self._head = ""
        self._value: JsonValue | None = None

    def step(self, character: str) -> str | None:
        if self._value is not None:
            return self._step_value(self._value, character)
        if not self._head and character in SPACE:
            return ""
        if len(self._head) > _MAX_NAME + len(self._middle):
            return None
        self._head += character
        if self._head.endswith(self._middle):
            return self._begin(self._head.removesuffix(self._middle))
        return ""

    def finish(self) -> str:
        return ""

    def _begin(self, head: str) -> str:
        self.name = head.strip(SPACE)
        self._value = JsonValue()
        return ""

    def _step_value(self, value: JsonValue, character: str) -> str | None:
        if not value.has_begun:
            if character in SPACE:
                return ""
            if character != "{":
                return None
        if not value.step(character):
            return None
        self.is_over = value.is_over
        return character
