"""The exact bytes that a token stands for.

Owns the two spellings that vocabularies use: GPT-2's byte alphabet, and SentencePiece's U+2581 with
byte fallback. The tokenizer's decoder says which one it uses. Knows no file and no model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(Protocol):
    """How the pieces of a vocabulary spell text."""

    def to_bytes(self, piece: str) -> bytes: ...

    def added_to_bytes(self, text: str) -> bytes:
        """The bytes of a token that was added to the vocabulary under this text."""
        ...

    def written(self, piece: str) -> bytes:
        """The bytes of the longest text that may become this piece."""
        ...

    def leading_spaces(self, text: str) -> int:
        """How many spaces the bytes of a text begin with once it has become pieces."""
        ...

    def to_pieces(self, character: str) -> list[list[str]]:
        """Ways to spell one character with small pieces, the best first."""
        ...


class ByteLevelSpelling:
    """One printable character per byte, as in GPT-2, Llama 3 and Qwen."""

    def __init__(self) -> None:
        self._character = _byte_alphabet()
        self._byte = {character: byte for byte, character in enumerate(self._character)}

    def to_bytes(self, piece: str) -> bytes:
        try:
            return bytes([self._byte[character] for character in piece])
        except KeyError:
            return piece.encode()  # not a byte-level piece: text never becomes this token

    def added_to_bytes(self, text: str) -> bytes:
        # "\u00e7" may be added as a letter, but in the alphabet it is one byte of a character.
        data = self.to_bytes(text)
        return data if _is_utf8(data) else text.encode()

    def written(self, piece: str) -> bytes:
        return self.to_bytes(piece)

    def leading_spaces(self, text: str) -> int:
        return len(text) - len(text.lstrip(" "))

    def to_pieces(self, character: str) -> list[list[str]]:
        return [[self._character[byte] for byte in character.encode()]]


@dataclass(frozen=True, slots=True)
class SentencePieceSpelling:
    """Pieces are text, with `space` for U+0020; with `byte_fallback`, `<0x0A>` is one byte."""

    space: str
    byte_fallback: bool

    def to_bytes(self, piece: str) -> bytes:
        match = _BYTE_TOKEN.fullmatch(piece) if self.byte_fallback else None
        if match:
            return bytes([int(match[1], 16)])
        return piece.replace(self.space, " ").encode()

    def added_to_bytes(self, text: str) -> bytes:
        return self.to_bytes(text)

    def written(self, piece: str) -> bytes:
        # A text may contain the character that stands for a space, which has more bytes.
        return piece.replace(" ", self.space).encode()

    def leading_spaces(self, text: str) -> int:
        return len(text) - len(text.lstrip(f" {self.space}"))

    def to_pieces(self, character: str) -> list[list[str]]:
        whole = [self.space if character == " " else character]
        return [whole, [f"<0x{byte:02X}>" for byte in character.encode()]]


def spelling_of(decoder: Mapping[str, Any] | None) -> Spelling:
    """The spelling that a `decoder` of tokenizer.json undoes. Raises ValueError if unknown."""
    steps = _steps(decoder)
    kinds = {str(step.get("type")) for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return ByteLevelSpelling()
    known = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"}
    spaces = [space for step in steps if (space := _space(step))]
    if kinds <= known and len(set(spaces)) == 1:
        return SentencePieceSpelling(spaces[0], byte_fallback="ByteFallback" in kinds)
    found = ", ".join(sorted(kinds)) or "none"
    raise ValueError(
        f"decoder {found} is not supported; allowed are ByteLevel, Metaspace, and Replace of one "
        f"character by a space with ByteFallback"
    )


def _steps(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") != "Sequence":
        return [decoder]
    return [inner for step in decoder.get("decoders", ()) for inner in _steps(step)]


def _space(step: Mapping[str, Any]) -> str | None:
    """The character that this step turns into a space, if any."""
    if step.get("type") == "Metaspace":
        return str(step.get("replacement", "\u2581"))
    if step.get("type") == "Replace":
        pattern = step.get("pattern")
        text = pattern.get("String") if isinstance(pattern, Mapping) else None
        plain = isinstance(text, str) and len(text) == 1 and step.get("content") == " "
        return text if plain else None
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_alphabet() -> list[str]:
    """GPT-2's character for each byte: printable Latin-1 is itself, the rest starts at U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet: list[str] = []
    n_shifted = 0
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(0x100 + n_shifted))
            n_shifted += 1
    return alphabet
