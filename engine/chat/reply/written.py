"""Texts that a model writes around its reasoning and its calls, divided at tokens.

Owns which parts of such a text are whole tokens. Knows no format.
"""

import re
from typing import NamedTuple, Protocol

from ...text.vocabulary import Vocabulary

_MAY_BE_TOKENS = re.compile(r"<[^<>\s]{1,60}>|\[[A-Z_/]{1,60}\]")


class ReplyTokenizer(Vocabulary, Protocol):
    """The methods of a tokenizer that are used here."""

    def added_token_id(self, text: str) -> int | None: ...


class Marker(NamedTuple):
    """A text that is not content."""

    text: str
    token_id: int | None = None
    """The token that is the whole marker; None if it takes several tokens."""
    is_special: bool = False
    """If so, its text shows only where special tokens do, and it is recognised by its id."""
    is_control: bool = False
    """If so, only a grammar that names the token allows it."""


Written = tuple[Marker, ...]
"""A text, divided at tokens that are whole markers."""


def marker(text: str, tokenizer: ReplyTokenizer) -> Marker:
    token_id = tokenizer.added_token_id(text)
    if token_id is None:
        return Marker(text)
    return Marker(text, token_id, tokenizer.is_special(token_id), tokenizer.is_control(token_id))


def divided(text: str, tokenizer: ReplyTokenizer) -> Written:
    """Only special and control tokens become markers: all others may occur in a text."""
    parts: list[Marker] = []
    plain = 0
    for match in _MAY_BE_TOKENS.finditer(text):
        found = marker(match[0], tokenizer)
        if found.is_special or found.is_control or match[0] == text:
            parts += [Marker(text[plain : match.start()]), found]
            plain = match.end()
    return tuple(part for part in (*parts, Marker(text[plain:])) if part.text)
