"""Tells good stories from poor ones.

Owns the rules alone; each is a function of a story's plain text. Knows nothing of documents.
"""

import re

MAX_REPEATED_SHARE = 0.1
"""With more repeated sentences than this, a story goes in circles and has no mere refrain."""

_FINE_CHARACTERS = re.compile(r"[\x20-\x7e\n\t\u00e9\u2013\u2014\u2018\u2019\u201c\u201d\u2026]*")
_SENTENCE_END = re.compile(r"[.!?][\"')\u201d\u2019]*$")
_DARK = re.compile(
    r"\b(blood|bloody|kill(s|ed|ing)?|guns?|dead|die|dies|died|dying|murder(ed)?|"
    r"bombs?|poison(ed)?|shot (him|her|them|it))\b",
    re.IGNORECASE,
)


def has_foreign_characters(text: str) -> bool:
    """Other alphabets, and the remains of wrongly decoded quotes."""
    return _FINE_CHARACTERS.fullmatch(text) is None


def is_unfinished(text: str) -> bool:
    return _SENTENCE_END.search(text.rstrip()) is None


def is_dark(text: str) -> bool:
    """Killing, dying and weapons, which do not belong in a demo's stories."""
    return _DARK.search(text) is not None


def is_repetitive(text: str) -> bool:
    sentences = [s.strip().lower() for s in re.split(r"(?<=[.!?])[\"']?\s+", text)]
    long = [sentence for sentence in sentences if sentence.count(" ") >= 2]
    return len(set(long)) < (1 - MAX_REPEATED_SHARE) * len(long)


RULES = (has_foreign_characters, is_unfinished, is_dark, is_repetitive)


def is_good_story(text: str) -> bool:
    return not any(rule(text) for rule in RULES)
