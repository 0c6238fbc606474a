"""How a chat template writes calls with a tag per argument, read off renderings of known calls.

Owns where a tag ends and the next begins. Knows no tokenizer and no stream.
"""

import re
from typing import NamedTuple

NAME = "zqfirst"
NEXT_NAME = "zqsecond"
TEXTS = {"zqkey": "zqvalue", "zqother": "zqthing"}
NUMBERS = {"zqkey": 73519, "zqother": 91537}


class TaggedShape(NamedTuple):
    """The texts around the parts of calls:

    opening name name_end (key_open key key_end value value_end)* end closing, and `between` in
    place of the closing and the next opening if there is a further call.
    """

    opening: str
    name_end: str
    key_open: str
    key_end: str
    json_key_end: str
    """In place of `key_end` before values that are not text; the same if the tags do not tell."""
    value_end: str
    end: str
    closing: str
    between: str | None
    """None if the template writes one call per reply."""


def tagged_shape(
    texts: str | None, numbers: str | None, empty: str | None, pair: str | None
) -> TaggedShape | None:
    """From replies with one call: of TEXTS, of NUMBERS, and without arguments; and from one with
    two calls, of which the first has TEXTS. None if their tags do not divide so.
    """
    if texts is None:
        return None
    found = _divided(texts, NAME, *(part for item in TEXTS.items() for part in item))
    if found is None:
        return None
    opening, first, key_end, between, other_end, rest = found
    key_open = _key_open(first, between)
    if key_open is None or key_end != other_end or not key_end:
        return None
    value_end = between.removesuffix(key_open)
    after = rest.removeprefix(value_end)
    if after == rest:  # the white space before the end differs from that before the next key
        value_end = value_end.rstrip()
        after = rest.removeprefix(value_end)
    end = re.match(r"\s*<[^<>]*>", after)
    if not value_end.strip().startswith("<") or after == rest or end is None:
        return None
    if not opening.strip() or any(key in value_end for key in TEXTS):
        return None
    first = first.removesuffix(key_open)
    return TaggedShape(
        opening,
        first if empty is None or first.strip() or first in empty else "",
        key_open,
        key_end,
        _json_key_end(numbers, key_end),
        value_end,
        end[0],
        after[end.end() :],
        _between(pair, value_end + end[0]),
    )


def _divided(text: str, *parts: str) -> list[str] | None:
    """The texts before, between and after the parts, each of which must come after the last."""
    found, position = [], 0
    for part in parts:
        start = text.find(part, position)
        if start < 0:
            return None
        found.append(text[position:start])
        position = start + len(part)
    return [*found, text[position:]]


def _key_open(first: str, between: str) -> str | None:
    """The tag that both end with: the beginning of every argument."""
    n = next(
        (i for i, (a, b) in enumerate(zip(first[::-1], between[::-1], strict=False)) if a != b),
        min(len(first), len(between)),
    )
    common = first[len(first) - n :]
    start = common.rfind("<")
    return common[start:] if start >= 0 else None


def _json_key_end(numbers: str | None, key_end: str) -> str:
    found = _divided(numbers or "", "zqkey", str(NUMBERS["zqkey"]))
    return found[1] if found is not None else key_end


def _between(pair: str | None, end: str) -> str | None:
    """What stands between the end of a call and the name of the next."""
    if pair is None or NEXT_NAME not in pair:
        return None
    start = pair.rfind(end, 0, pair.find(NEXT_NAME))
    return pair[start + len(end) : pair.find(NEXT_NAME)] if start >= 0 else None
