"""One tool call as Gemma 4 writes it: an object with bare keys, and its own quotes around texts.

Owns the way from there to JSON. Linear in its length. Knows no tools.
"""

import json

from ...text.matcher import StringMatcher
from .argument_value import escaped, read_json
from .json_call import SPACE

_CALL = "call:"
_MAX_NAME = 256
_PAIRS = {"}": "{", "]": "["}
_LITERALS = {"None": "null", "True": "true", "False": "false"}


class GemmaCall:
    """`call:name{key:<|"|>text<|"|>,other:[1,true]}`; the arguments are returned as JSON.

    Texts stream as they are written. JSON strings in place of the quotes, and texts without any,
    are understood as well.
    """

    def __init__(self, quote: str) -> None:
        """`quote`: the spelling of the quotes."""
        self.name: str | None = None
        self.is_over = False
        self._quote = quote
        self._ends = StringMatcher((quote,))
        self._brackets: list[str] = []
        self._is_key = False
        self._bare = ""  # the name, or what stands outside of quotes and brackets
        self._held: str | None = None  # within quotes: what may end them
        self._is_in_json = False  # a JSON string
        self._is_escaped = False

    def step(self, character: str) -> str | None:
        if self.name is None:
            return self._step_name(character)
        if self._held is not None:
            return self._step_text(self._held + character, character)
        if self._is_in_json:
            return self._step_json(character)
        return self._step_bare(character)

    def finish(self) -> str:
        if self._held is not None:
            return escaped(self._held)
        return "" if self._quote.startswith(self._bare) else self._bare

    def _step_name(self, character: str) -> str | None:
        if not self._bare and character in SPACE:
            return ""
        self._bare += character
        if len(self._bare) > _MAX_NAME:
            return None
        if character != "{":
            return ""
        self.name = self._bare[:-1].removeprefix(_CALL).strip(SPACE)
        self._bare = ""
        return self._open(character)

    def _step_bare(self, character: str) -> str | None:
        match character:
            case "{" | "[":
                return self._value() + self._open(character)
            case "}" | "]":
                return self._close(character)
            case ",":
                self._is_key, rest = self._brackets[-1] == "{", self._value()
                return f"{rest}, "
            case ":" if self._is_key:
                key, self._bare, self._is_key = self._bare.strip(SPACE), "", False
                return f"{_quoted(key) if key else ''}: "
            case '"' if not self._bare:
                self._is_in_json = True
                return character
        if self._bare or character not in SPACE:
            self._bare += character
        if not self._bare.endswith(self._quote):
            return ""
        before, self._bare = self._bare.removesuffix(self._quote), ""
        self._held = ""
        self._ends.rollback(0)
        return f'{before.strip(SPACE)}"'

    def _step_text(self, held: str, character: str) -> str:
        if self._ends.step(character) is not None:
            self._held = None
            return escaped(held.removesuffix(self._quote)) + '"'
        n = len(held) - self._ends.n_partial
        self._held = held[n:]
        return escaped(held[:n])

    def _step_json(self, character: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._is_in_json = False
        return character if character >= " " else escaped(character)

    def _open(self, bracket: str) -> str:
        self._brackets.append(bracket)
        self._is_key = bracket == "{"
        return bracket

    def _close(self, bracket: str) -> str | None:
        if self._brackets[-1] != _PAIRS[bracket]:
            return None
        self._brackets.pop()
        self._is_key = False
        self.is_over = not self._brackets
        return self._value() + bracket

    def _value(self) -> str:
        """What stood outside of quotes, as JSON."""
        text, self._bare = self._bare.strip(SPACE), ""
        if not text:
            return ""
        text = _LITERALS.get(text, text)
        try:
            read_json(text)
        except (ValueError, RecursionError):
            return _quoted(text)
        return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
