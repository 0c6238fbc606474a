"""Reads word lists written as running text.

Owns the notation: `|` parts the entries, `:` parts a pair, line breaks are spaces.
"""


def listed(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split("|"))


def spaced(text: str) -> tuple[str, ...]:
    """Entries of one word each need no mark between them."""
    return tuple(text.split())


def paired(text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for entry in listed(text):
        left, right = entry.split(":")
        pairs.append((left, right))
    return tuple(pairs)
