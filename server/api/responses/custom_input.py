r"""The text that a custom tool is called with, read from the JSON of the call as it comes.

Models call tools with JSON: {"input": "the text"}. Owns how that becomes the text again, piece by
piece, also where an escape is cut in two. What is not such an object is the text as it stands.
"""

import json
import re

_OPENING = '{"input":"'
_WHITE_SPACE = re.compile(r"\s+")
# As much of a JSON string as is complete.
_COMPLETE = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
# The end of what is complete, if its other half may come.
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_MAY_GO_ON = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


class CustomInput:
    """That of one call."""

    def __init__(self) -> None:
        self._held = ""
        self._has_begun = False
        self._has_ended = False
        self._is_plain = False

    def add(self, piece: str) -> str:
        """What `piece` adds to the text."""
        if self._is_plain:
            return piece
        if self._has_ended:
            return ""
        self._held += piece
        if not self._has_begun:
            return self._open()
        return self._read()

    def _open(self) -> str:
        compact = _WHITE_SPACE.sub("", self._held)
        if not compact.startswith(_OPENING):
            if _OPENING.startswith(compact):
                return ""
            self._is_plain = True
            return self._held
        self._has_begun = True
        colon = self._held.index(":")
        self._held = self._held[self._held.index('"', colon) + 1 :]
        return self._read()

    def _read(self) -> str:
        read = []
        while True:
            complete = _COMPLETE.match(self._held)
            assert complete is not None, "it matches nothing, too"
            text, rest = complete[0], self._held[complete.end() :]
            half = _HALF_PAIR.search(text)
            if half is not None and (not rest or _MAY_GO_ON.fullmatch(rest)):
                text, rest = text[: half.start()], half[0] + rest
                read.append(_decoded(text))
                break
            read.append(_decoded(text))
            if rest.startswith('"'):
                self._has_ended, rest = True, ""
            if not rest or _MAY_GO_ON.fullmatch(rest):
                break
            read.append(rest[:1])  # a backslash that escapes nothing
            self._held = rest[1:]
        self._held = rest
        return "".join(read)


def _decoded(text: str) -> str:
    decoded: str = json.loads(f'"{text}"', strict=False)
    # A surrogate without its other half is no character.
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
