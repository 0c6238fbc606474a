"""How much a JSON text holds, counted before anything is built of it.

A reader of JSON keeps Python's lock from the first value to the last, and one byte can be a value.
So a large text is counted first, piece by piece: what it would cost is known from its commas,
brackets and colons alone. Pure: knows no request and no error of the wire.
"""

import re
from collections.abc import Iterable, Iterator

MAX_VALUES = 300_000
"""A prompt of as many token ids as any route takes, and some more."""
MAX_CONTAINERS = 65_536
"""Lists and objects, which cost ten times what a number does."""
MAX_NAMES = 32_768
"""Of all objects together: conversations of up to sixteen thousand messages."""
MAX_DIGITS = 128
"""Of one number: what a text of thousands of digits means takes their square in time."""

# Few enough that no step holds up another thread for long.
_PIECE_BYTES = 32 * 1024
_CHARACTERS = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
# A string, or at the end of a piece the beginning of one: of that the quote is kept, and the
# backslash that awaits the next piece. No quote inside is tried as a beginning.
_STRING = re.compile(rb'"%b"|(")%b(\\?)\Z' % (_CHARACTERS, _CHARACTERS), re.DOTALL)
_AS_ZEROS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)


def excess(text: bytes) -> str | None:
    """What the text has too much of, how many, and what is allowed; None: it may be read.

    Numbers of values and names are those of the text up to where the limit is passed.
    """
    # Strings hold commas too; mostly there are few enough for all of them to count.
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
            return f"more than {MAX_NAMES:,} names of fields, over all its objects"
        if _LONG_NUMBER in piece.translate(_AS_ZEROS):
            return f"a number of more than {MAX_DIGITS} digits"
    return None


def _pieces(text: bytes) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE_BYTES):
        yield text[start : start + _PIECE_BYTES]


def _outside_strings(text: bytes) -> Iterator[bytes]:
    """What is left of each piece without its strings."""
    opened = b""  # the beginning of a string that has not ended, as short as can be
    for piece in _pieces(text):
        rest, quote, escape = _STRING.sub(rb"\1\2", opened + piece).partition(b'"')
        opened = quote + escape
        yield rest
