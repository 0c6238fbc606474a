"""One tool call as Mistral's models write it after [TOOL_CALLS].

Owns the two forms: an object in a list, and a name followed by its arguments.
"""

from .json_call import SPACE, JsonCall, JsonValue

_MAX_NAME = 256


class MistralCall:
    """`[{"name": ..., "arguments": ...}`, or `name[ARGS]{...}`, perhaps with `[CALL_ID]...` in
    between or without either tag.
    """

    def __init__(self, call_id: str, arguments: str) -> None:
        """The spellings of [CALL_ID] and [ARGS]."""
        self.name: str | None = None
        self.is_over = False
        self._call_id = call_id
        self._arguments = arguments
        self._json: JsonCall | None = None
        self._value: JsonValue | None = None
        self._head = ""

    def step(self, character: str) -> str | None:
        if self._json is not None:
            text = self._json.step(character)
            self.name, self.is_over = self._json.name, self._json.is_over
            return text
        if self._value is not None:
            return self._step_value(self._value, character)
        if character in SPACE and self._head in ("", "["):
            return ""
        if character == "{" and self._head in ("", "["):
            self._json = JsonCall()
            return self._json.step(character)
        return self._step_head(character)

    def finish(self) -> str:
        return self._json.finish() if self._json is not None else ""

    def _step_head(self, character: str) -> str | None:
        if character == "\n" or self._head == "[" or len(self._head) > _MAX_NAME:
            return None
        if character == "{":
            return self._begin(self._head) + (self.step(character) or "")
        self._head += character
        if self._head.endswith(self._arguments):
            return self._begin(self._head.removesuffix(self._arguments))
        return ""

    def _begin(self, head: str) -> str:
        self.name = head.split(self._call_id)[0].strip()
        self._value = JsonValue()
        return ""

    def _step_value(self, value: JsonValue, character: str) -> str | None:
        if character in SPACE and not value.has_begun:
            return ""
        if not value.step(character):
            return None
        self.is_over = value.is_over
        return character
