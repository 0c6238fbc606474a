"""How many columns a character takes in a terminal (Unicode Standard Annex 11)."""

import unicodedata
from functools import cache

_FIRST_UNUSUAL = "\u0300"  # the first combining character


def text_width(text: str) -> int:
    return sum(map(char_width, text))


def char_width(char: str) -> int:
    """0 for a combining or invisible character, 2 for a wide one, else 1."""
    return 1 if char < _FIRST_UNUSUAL else _unusual_width(char)


@cache
def _unusual_width(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
