"""A reply as the items of a response's output: which one each piece of it belongs to.

Owns where one item ends and the next begins. Whole answers and events are made of the same pieces,
so that both say the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine import ReplyDelta

from ...stream.jobs import Step
from ..chat.reply import Reader, ReplyShape
from .custom_input import CustomInput
from .ids import call_id, output_id
from .output import NamedCall, OpenItem

_KINDS = {"content": "message", "reasoning": "reasoning"}  # all others are calls


class Piece(NamedTuple):
    """What is added to an item."""

    item: OpenItem
    begins: bool
    """Whether it is the first of its item."""
    text: str
    logprobs: list[dict[str, Any]]


class Items:
    """Those of one reply."""

    def __init__(
        self,
        response_id: str,
        reader: Reader,
        shape: ReplyShape,
        calls: Mapping[str, NamedCall],
        *,
        describes_all: bool,
    ) -> None:
        """`calls`: by the names that the model knows. `describes_all`: whether reasoning and calls
        have logprobs, too, if the text has.
        """
        self.reader = reader
        self.listed: list[OpenItem] = []
        self.n_reasoning = 0
        """Tokens of reasoning so far, the marks around it included."""
        self.held: list[dict[str, Any]] = []
        """Logprobs of tokens without text, such as marks, until the next text comes."""
        self._response_id = response_id
        self._shape = shape
        self._calls = calls
        # Whether tokens have logprobs: those of other parts, and those of the text.
        self._is_described = shape.logprobs and describes_all, shape.logprobs

    @property
    def open(self) -> OpenItem | None:
        """The one that text is added to."""
        return self.listed[-1] if self.listed else None

    def pieces(self, step: Step) -> Iterator[Piece]:
        """What `step` adds, none while text is held."""
        for part in self.reader.read(step.result):
            if part.kind == "reasoning":
                self.n_reasoning += len(part.tokens)
            logprobs = self.held
            if part.tokens and self._is_described[part.kind == "content"]:
                logprobs = [*logprobs, *self._shape.entries(part.tokens, step.clock)]
            begins = self._begins(part)
            if not part.text and (begins or not logprobs):
                self.held = logprobs
                continue
            self.held = []
            text = part.text
            if begins:
                self._begin(part)
                text = "" if part.kind == "tool_name" else text
            item = self.listed[-1]
            yield Piece(item, begins, item.add(text, logprobs), logprobs)

    def read(self, steps: Sequence[Step]) -> None:
        """Take in all that `steps` add."""
        for step in steps:
            for _ in self.pieces(step):
                pass

    def begin_empty(self) -> OpenItem:
        """The message of a reply without any text."""
        self._add("message")
        return self.listed[-1]

    def _begins(self, part: ReplyDelta) -> bool:
        """Whether text of this part begins an item."""
        if self.open is None or part.kind == "tool_name":
            return True
        kind = _KINDS.get(part.kind)
        return self.open.kind != kind if kind else self.open.call is None

    def _begin(self, part: ReplyDelta) -> None:
        if part.kind in _KINDS:
            self._add(_KINDS[part.kind])
            return
        call = self._calls[part.text]
        self._add(call.kind)
        item = self.listed[-1]
        item.call, item.call_id = call, call_id(self._response_id, item.index)
        if item.kind == "custom_tool_call":
            item.custom = CustomInput()

    def _add(self, kind: str) -> None:
        index = len(self.listed)
        self.listed.append(OpenItem(index, kind, output_id(self._response_id, kind, index)))
