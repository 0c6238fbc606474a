"""A stream of the fake engine as plain letters, with all that is done to it on the way.

Owns what must be read in the end. Knows no server: it is told at which token something was done.
"""

import zlib
from array import array
from dataclasses import dataclass, field, replace

_A = ord("a")


@dataclass
class Letters:
    """Every letter is a token, and depends on all before it."""

    prompt: str
    max_tokens: int
    text: str = ""
    is_stopped: bool = False
    _given: str = ""
    _sums: list[int] = field(default_factory=list)
    """The checksum before each letter, and after the last."""

    def __post_init__(self) -> None:
        self._sums = [zlib.crc32(array("H", list(self.prompt.encode())).tobytes())]
        given, self.text = self.text, ""
        for letter in given:
            self._add(letter)

    def to(self, n_tokens: int) -> None:
        """So many letters, or as many as may come."""
        while len(self.text) < min(n_tokens, self.max_tokens) and not self.is_stopped:
            letter, self._given = self._given[:1], self._given[1:]
            self._add(letter or chr(_A + self._sums[-1] % 26))

    def to_the_end(self) -> None:
        self.to(self.max_tokens)

    def rewind(self, n_tokens: int) -> None:
        self._given = ""
        self.text = self.text[: len(self.text) - n_tokens]
        del self._sums[len(self.text) + 1 :]

    def give(self, text: str) -> None:
        """What comes next."""
        self._given += text

    def branch(self, at: int, given: str, max_tokens: int) -> "Letters":
        """Another stream from its first `at` letters on."""
        ahead = self.ahead(at)
        other = Letters(self.prompt, max_tokens, ahead.text[:at])
        other.give(given)
        return other

    def ahead(self, n_tokens: int) -> "Letters":
        """As it will be at so many letters, if nothing is done to it."""
        other = replace(self)
        other.to(n_tokens)
        return other

    def _add(self, letter: str) -> None:
        self.text += letter
        self._sums.append(zlib.crc32(array("H", list(letter.encode())).tobytes(), self._sums[-1]))
