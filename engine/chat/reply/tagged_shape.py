"""How a chat template writes calls with a tag per argument, read off renderings of known calls.

Owns where a tag ends and the next begins. Knows no tokenizer and no stream.
"""

import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

NAMES = ("zqfirst", "zqsecond")
TEXTS = {"zqkey": "zqvalue", "zqother": "zqthing"}
NUMBERS = {"zqkey": 73519, "zqother": 91537}

T = TypeVar("T")
U = TypeVar("U")


class TaggedShape(NamedTuple, Generic[T]):
    """The texts around the parts of calls:

    opening name_open name name_end (key_open key key_end value value_end)* end closing, and
    `between` in place of the closing, the next opening and name_open if there is a further call.
    """

    opening: T
    name_open: T
    name_end: T
    key_open: T
    key_end: T
    json_key_end: T
    """In place of `key_end` before values that are not text; the same if the tags do not tell."""
    value_end: T
    end: T
    closing: T
    between: T | None
    """None if the template writes one call per reply."""

    def each(self, change: Callable[[T], U]) -> "TaggedShape[U]":
        return TaggedShape(
            change(self.opening),
            change(self.name_open),
            change(self.name_end),
            change(self.key_open),
            change(self.key_end),
            change(self.json_key_end),
            change(self.value_end),
            change(self.end),
            change(self.closing),
            None if self.between is None else change(self.between),
        )


# Qwen3-Coder and Qwen 3.5.
FUNCTION_TAGS = TaggedShape(
    opening="<tool_call>\n",
    name_open="<function=",
    name_end=">\n",
    key_open="<parameter=",
    key_end=">\n",
    json_key_end=">\n",
    value_end="\n</parameter>\n",
    end="</function>",
    closing="\n</tool_call>",
    between="\n</tool_call>\n<tool_call>\n<function=",
)


class TaggedReplies(NamedTuple):
    """Replies as the template writes them; None if it fails."""

    texts: str | None
    """One call of TEXTS."""
    numbers: str | None
    """One call of NUMBERS."""
    empty: str | None
    """One call without arguments."""
    pair: str | None
    """Two calls, the first of which has TEXTS."""


def tagged_shape(replies: TaggedReplies) -> TaggedShape[str] | None:
    """None if the tags do not divide so."""
    if replies.texts is None:
        return None
    items = [part for item in TEXTS.items() for part in item]
    found = _divided(replies.texts, NAMES[0], *items)
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
    name_open = _last_tag(opening)
    return TaggedShape(
        opening.removesuffix(name_open),
        name_open,
        _name_end(first.removesuffix(key_open), replies.empty),
        key_open,
        key_end,
        _json_key_end(replies.numbers, key_end),
        value_end,
        end[0],
        after[end.end() :],
        _between(replies.pair, value_end + end[0]),
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


def _last_tag(opening: str) -> str:
    """The tag that holds the name; empty if the name follows a whole tag."""
    found = re.search(r"<[^<>]*$", opening)
    return found[0] if found else ""


def _name_end(written: str, empty: str | None) -> str:
    """White space after the name that only arguments need is no part of its end."""
    return written if written.strip() or empty is None or NAMES[0] + written in empty else ""


def _json_key_end(numbers: str | None, key_end: str) -> str:
    found = _divided(numbers or "", "zqkey", str(NUMBERS["zqkey"]))
    return found[1] if found is not None else key_end


def _between(pair: str | None, end: str) -> str | None:
    """What stands between the end of a call and the name of the next."""
    if pair is None or NAMES[1] not in pair:
        return None
    start = pair.rfind(end, 0, pair.find(NAMES[1]))
    return pair[start + len(end) : pair.find(NAMES[1])] if start >= 0 else None
