"""The tags that a reply may hold at each place, and their spelling in the searched text.

Owns the spelling and the meaning of each tag. A tag that is a special token has no text in the
stream: it is spelled as one lone surrogate, which no decoded text can hold.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from ...text.matcher import StringMatcher
from .format import SPACE, Marker, ReplyFormat, Written
from .xml_call import FUNCTION

Place = Literal["reasoning", "start", "content", "between", "listed"]
"""Where a text is: within the reasoning; before any content; in it; after a call; after a call of a
list.
"""
Meaning = Literal[
    "open_reasoning", "close_reasoning", "open_call", "begin_call", "close_call", "open_text"
]
"""A tag that opens a call comes before it; a tag that begins a call is part of it."""

BARE = "{"  # begins a call without a tag
_FIRST_SURROGATE = 0xD800
_SURROGATES = re.compile("[\ud800-\udfff]")


class Spelling:
    """How the tags of one reply are written in the searched text."""

    def __init__(self, *, in_text: bool) -> None:
        """`in_text`: whether special tokens show in the text."""
        self.by_id: dict[int, str] = {}
        """The spelling of tags that are special tokens, by token id."""
        self._in_text = in_text

    def of(self, marker: Marker) -> str:
        if self._in_text or not marker.is_special or marker.token_id is None:
            return marker.text
        spelling = chr(_FIRST_SURROGATE + len(self.by_id))
        return self.by_id.setdefault(marker.token_id, spelling)

    def of_all(self, written: Written) -> str:
        return "".join(map(self.of, written))


class PlaceMarkers:
    """The tags of one place."""

    def __init__(self, meanings: Mapping[str, Meaning]) -> None:
        """`meanings`: by the spelling of the tag."""
        self.meanings = meanings
        self.holds_space = bool(meanings)  # white space before a tag belongs to it
        self._matcher = StringMatcher(list(meanings))
        firsts = "".join(re.escape(first) for first in sorted({text[0] for text in meanings}))
        # Empty, or without a first character and not ending in white space.
        self._plain = re.compile(rf"(?:[^{firsts}]*[^\s{firsts}])?" if firsts else r"(?s:.*)")

    @property
    def n_partial(self) -> int:
        """How many of the last characters may begin a tag."""
        return self._matcher.n_partial

    def step(self, character: str) -> str | None:
        """Take a character; returns the spelling of the tag that it completes."""
        return self._matcher.step(character)

    def restart(self, text: str) -> None:
        """Forget all but `text`, which holds no whole tag."""
        self._matcher.rollback(0)
        for character in text:
            self._matcher.step(character)

    def is_plain(self, text: str) -> bool:
        """Whether the text holds no beginning of a tag, nor white space before one."""
        return self._plain.fullmatch(text) is not None


class ReplyMarkers:
    """The tags of one reply."""

    def __init__(self, form: ReplyFormat, spelling: Spelling, *, tool_names: Iterable[str]) -> None:
        """`tool_names`: the tools that may be called; without any, calls are not looked for."""
        names = list(tool_names)
        reads_tools = bool(names)
        self._spelling = spelling
        reasoning, tools = form.reasoning, form.tools
        opened = self._meant("open_reasoning", reasoning.open if reasoning else None)
        closed = self._meant("close_reasoning", reasoning.close if reasoning else None)
        is_named = tools.style == "named"
        calls = self._meant("open_call", tools.open if reads_tools and not is_named else None)
        ends = self._meant("close_call", tools.close if reads_tools else None)
        self.inner = [self._spelling.of(marker) for marker in tools.inner if reads_tools]
        """The spelling of the tags within a call."""
        bare: dict[str, Meaning] = {BARE: "begin_call"} if reads_tools else {}
        if reads_tools and tools.style == "qwen3-coder":
            calls[FUNCTION] = "begin_call"
        first = bare if tools.style == "llama3" else {}
        next_ = bare if tools.style in ("llama3", "mistral") else {}
        self.middle = ""
        """The text between the name and the arguments of a named call."""
        if reads_tools and is_named and tools.around is not None:
            around = tools.around
            self.middle = self._spelling.of_all(around.middle)
            self.inner = [character for character in self.middle if is_spelled(character)]
            further = self._tag("open_call", around.between or ())
            calls = self._tag("open_call", around.opening)
            ends = self._tag("close_call", around.closing)
            if not calls:  # the prompt has opened it
                first = {name + self.middle: "begin_call" for name in names}
                first[self._spelling.of_all(around.text_prefix)] = "open_text"
                calls = further
            next_ = further
        # A special token is never accidental, so it ends reasoning that was not closed.
        certain = {text: meaning for text, meaning in calls.items() if is_spelled(text)}
        self._at: dict[Place, PlaceMarkers] = {
            "reasoning": PlaceMarkers(closed | certain),
            "start": PlaceMarkers(opened | calls | first),
            "content": PlaceMarkers(calls),
            "between": PlaceMarkers(opened | ends | calls | next_),
            "listed": PlaceMarkers(opened | ends | calls | bare),
        }

    def at(self, place: Place) -> PlaceMarkers:
        return self._at[place]

    def _meant(self, meaning: Meaning, marker: Marker | None) -> dict[str, Meaning]:
        return {} if marker is None else {self._spelling.of(marker): meaning}

    def _tag(self, meaning: Meaning, written: Written) -> dict[str, Meaning]:
        text = self._spelling.of_all(written).strip(SPACE)
        return {text: meaning} if text else {}


def is_spelled(text: str) -> bool:
    """Whether this is the spelling of a special token."""
    return _SURROGATES.match(text) is not None


def without_spelled(text: str) -> str:
    """The text without the spellings of special tokens."""
    return _SURROGATES.sub("", text)
