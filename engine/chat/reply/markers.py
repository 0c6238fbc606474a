"""The tags that a reply may hold at each place, and their spelling in the searched text.

Owns the spelling and the meaning of each tag. A tag that is a special token has no text in the
stream: it is spelled as one lone surrogate, which no decoded text can hold.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from ...text.matcher import StringMatcher
from .format import ReplyFormat
from .json_call import SPACE
from .tagged_shape import TaggedShape
from .tool_format import ToolFormat
from .written import Marker, Written

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


class _Calls(NamedTuple):
    """The tags of calls: anywhere, at the start of a reply, after a call, those that close one, and
    between the calls of a list.
    """

    anywhere: dict[str, Meaning]
    first: dict[str, Meaning]
    next_: dict[str, Meaning]
    ends: dict[str, Meaning]
    listed: dict[str, Meaning]


class ReplyMarkers:
    """The tags of one reply."""

    def __init__(self, form: ReplyFormat, spelling: Spelling, *, tool_names: Iterable[str]) -> None:
        """`tool_names`: the tools that may be called; without any, calls are not looked for."""
        names = list(tool_names)
        self._spelling = spelling
        reasoning, tools = form.reasoning, form.tools
        label = reasoning.label.strip(SPACE) if reasoning else ""
        opened = self._meant("open_reasoning", reasoning.open if reasoning else None, label)
        closed = self._meant("close_reasoning", reasoning.close if reasoning else None)
        self.inner: list[str] = []
        """The spelling of the tags within a call."""
        self.middle = ""
        """The text between the name and the arguments of a named call."""
        self.tags: TaggedShape[str] | None = None
        """The tags of a call with a tag per argument."""
        found = self._calls(tools, names) if names else _Calls({}, {}, {}, {}, {})
        calls, first, next_, ends, listed = found
        # A special token is never accidental, so it ends reasoning that was not closed.
        certain = {text: meaning for text, meaning in calls.items() if is_spelled(text)}
        self._at: dict[Place, PlaceMarkers] = {
            "reasoning": PlaceMarkers(closed | certain),
            "start": PlaceMarkers(opened | calls | first),
            "content": PlaceMarkers(calls),
            "between": PlaceMarkers(opened | ends | calls | next_),
            "listed": PlaceMarkers(opened | ends | calls | listed),
        }

    def at(self, place: Place) -> PlaceMarkers:
        return self._at[place]

    def _calls(self, tools: ToolFormat, names: list[str]) -> "_Calls":
        bare: dict[str, Meaning] = {BARE: "begin_call"}
        if tools.style == "named":
            return self._named(tools, names)
        if tools.style == "tagged" and tools.tags is not None:
            return self._tagged(tools.tags)
        self.inner = [self._spelling.of(marker) for marker in tools.inner]
        between = tools.around.between if tools.around is not None else None
        is_bare = between is not None and not self._spelling.of_all(between).strip(SPACE)
        return _Calls(
            self._meant("open_call", tools.open),
            bare if tools.style == "llama3" else {},
            bare if is_bare or tools.style in ("llama3", "mistral") else {},
            self._meant("close_call", tools.close),
            bare,
        )

    def _named(self, tools: ToolFormat, names: list[str]) -> "_Calls":
        around = tools.around
        assert around is not None
        self.middle = self._spelling.of_all(around.middle)
        self.inner = _SURROGATES.findall(self.middle)
        further = self._tag("open_call", around.between or ())
        ends = self._tag("close_call", around.closing)
        calls = self._tag("open_call", around.opening)
        if calls:
            return _Calls(calls, {}, further, ends, {})
        # The prompt has opened it.
        first: dict[str, Meaning] = {name + self.middle: "begin_call" for name in names}
        first[self._spelling.of_all(around.text_prefix)] = "open_text"
        return _Calls(further, first, further, ends, {})

    def _tagged(self, tags: TaggedShape[Written]) -> "_Calls":
        """A model may leave out the opening in front of a tag that holds the name."""
        self.tags = shape = tags.each(self._spelling.of_all)
        self.inner = _SURROGATES.findall("".join(part or "" for part in shape[1:]))
        name_open, further = shape.name_open, shape.between or ""
        calls = self._tag("open_call", tags.opening)
        begun: dict[str, Meaning] = {name_open: "begin_call"} if name_open else {}
        next_ = further.removesuffix(name_open).strip(SPACE)
        more: dict[str, Meaning] = {next_: "open_call"} if next_ else {}
        ends = self._tag("close_call", tags.closing) | self._tag("close_call", tags.end)
        return _Calls(calls | begun, {}, more, ends, {})

    def _meant(
        self, meaning: Meaning, marker: Marker | None, label: str = ""
    ) -> dict[str, Meaning]:
        return {} if marker is None else {self._spelling.of(marker) + label: meaning}

    def _tag(self, meaning: Meaning, written: Written) -> dict[str, Meaning]:
        text = self._spelling.of_all(written).strip(SPACE)
        return {text: meaning} if text else {}


def is_spelled(text: str) -> bool:
    """Whether this is the spelling of a special token."""
    return _SURROGATES.match(text) is not None


def without_spelled(text: str) -> str:
    """The text without the spellings of special tokens."""
    return _SURROGATES.sub("", text)
