"""Tokens as text to look at: quoted, and cut into cells where a character is split over several.

Knows bytes and probabilities; knows no model.
"""

import codecs
import json
from collections.abc import Sequence
from typing import NamedTuple


class Cell(NamedTuple):
    """The shortest run of tokens that ends with a whole character."""

    text: str
    tokens: tuple[int, ...]
    """Their indices: more than one if they share a character."""


def cells(tokens: Sequence[bytes]) -> list[Cell]:
    """The cells of the bytes of all tokens; joined, their text is the text of the tokens.

    A token without bytes is a cell without text. Malformed bytes become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    found, text, indices = [], "", []
    for index, data in enumerate(tokens):
        is_last = index == len(tokens) - 1
        text += decoder.decode(data, is_last)
        indices.append(index)
        if is_last or not decoder.getstate()[0]:
            found.append(Cell(text, tuple(indices)))
            text, indices = "", []
    return found


def quoted(token_bytes: bytes) -> str:
    """A token's text in quotes, or its bytes in hex if it is only part of a character."""
    try:
        return json.dumps(token_bytes.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"<{token_bytes.hex(' ')}>"


def percent(p: float) -> str:
    """A probability for people: "53 %", "9.4 %", "0.3 %", "<0.1 %"."""
    share = 100 * p
    if share < 0.1:
        return "<0.1 %"
    if 99.5 <= share < 100:
        return ">99 %"
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"
