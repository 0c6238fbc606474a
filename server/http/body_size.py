"""Counts the values of a JSON text before it is parsed.

A JSON parser holds Python's lock from the first value to the last, and one byte can be a value.
So a large text is counted first, piece by piece: its commas, brackets and colons alone show what
parsing would cost. Pure: knows no request and no error of the wire.
"""

import re
from collections.abc import Iterable, Iterator

MAX_VALUES = 300_000
"""More than the token ids of the longest prompt that any route accepts."""
MAX_CONTAINERS = 65_536
"""Lists and objects; each costs ten times as much as a number."""
MAX_NAMES = 32_768
"""Over all objects: enough for conversations of sixteen thousand messages."""
MAX_DIGITS = 128
"""In one number: the time to convert a number is quadratic in its digits."""

# Small enough that no step blocks another thread for long.
_PIECE_BYTES = 32 * 1024
_CHARACTERS = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
# A string, or the beginning of one at the end of a piece. Of a beginning, the groups keep the quote
# and a backslash that escapes the first byte of the next piece. A quote inside a string is never
# tried as the start of another.
_STRING = re.compile(rb'"%b"|(")%b(\\?)\Z' % (_CHARACTERS, _CHARACTERS), re.DOTALL)
_AS_ZEROS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)


def excess(text: bytes) -> str | None:
    """Says which limit the text exceeds; None if it may be parsed."""
    # Strings hold commas too. Mostly the text is within the limits even with those counted.
    if _excess(_pieces(text)) is None:
        return None
    return _excess(_outside_strings(text))


def _excess(pieces: Iterable[bytes]) -> str | None:
    n_values, n_containers, n_names = 1, 0, 0
    for piece in pieces:
        opened = piece.count(b"[") + piece.count(b"{")
        n_containers += opened
        n_values += piece.count(b",") + opened
        n_names += piece.count(b":")
        if n_values > MAX_VALUES:
            return f"more than {MAX_VALUES:,} values (list items, fields, lists and objects)"
        if n_containers > MAX_CONTAINERS:
            return f"more than {MAX_CONTAINERS:,} lists and objects"
        if n_names > MAX_NAMES:
            return f"more than {MAX_NAMES:,} field names in all its objects together"
        if _LONG_NUMBER in piece.translate(_AS_ZEROS):
            return f"a number with more than {MAX_DIGITS} digits"
    return None


def _pieces(text: bytes) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE_BYTES):
        yield text[start : start + _PIECE_BYTES]


def _outside_strings(text: bytes) -> Iterator[bytes]:
    """Each piece without its strings."""
    opened = b""  # the shortest form of a string that has not ended yet: quote and backslash
    for piece in _pieces(text):
        rest, quote, escape = _STRING.sub(rb"\1\2", opened + piece).partition(b'"')
        opened = quote + escape
        yield rest
