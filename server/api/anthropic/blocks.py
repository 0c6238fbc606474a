"""A reply as Anthropic's blocks: which block each piece of it belongs to.

Owns where one block ends and the next begins. Whole answers and events are made of the same pieces,
so that both say the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...stream.jobs import Step
from ..chat.reply import Reader, ReplyShape, new_call_id

UNSIGNED = "unsigned"
"""In place of a signature: thinking that a client sends back is not checked."""

_KINDS = {
    "content": "text",
    "reasoning": "thinking",
    "tool_name": "tool_use",
    "tool_arguments": "tool_use",
}


class Piece(NamedTuple):
    """What is added to a block."""

    block: "OpenBlock"
    begins: bool
    """Whether it is the first of its block."""
    text: str
    logprobs: list[dict[str, Any]]


@dataclass(slots=True)
class OpenBlock:
    """A block, as far as it is."""

    index: int
    kind: str
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)


class Blocks:
    """Those of one reply."""

    def __init__(self, reader: Reader, shape: ReplyShape, *, omits_thinking: bool = False) -> None:
        """`omits_thinking`: blocks of thinking are empty."""
        self.reader = reader
        self._shape = shape
        self._omits_thinking = omits_thinking
        self._open: OpenBlock | None = None
        self._n = 0
        self.held: list[dict[str, Any]] = []
        """Logprobs of tokens without text, such as marks, until the next text comes."""

    def pieces(self, step: Step) -> Iterator[Piece]:
        """What `step` adds, none while text is held."""
        for part in self.reader.read(step.result):
            if part.tokens and self._shape.logprobs:
                self.held += self._shape.entries(part.tokens, step.clock)
            if not part.text:
                continue
            begins = self._begins(_KINDS[part.kind], is_call=part.kind == "tool_name")
            assert self._open is not None, "one has begun"
            logprobs, self.held = self.held, []
            text = part.text
            if part.kind == "tool_name":
                self._open.name, text = text, ""
            elif self._omits_thinking and part.kind == "reasoning":
                if not begins:
                    continue
                text, logprobs = "", []
            yield Piece(self._open, begins, text, logprobs)

    def go_back(self, reader: Reader, steps: list[Step]) -> None:
        """Read on with `reader`, a new one, after `steps`, whose pieces have been told."""
        told = self._open, self._n
        self.reader, self._open = reader, None
        for step in steps:
            for _ in self.pieces(step):
                pass
        self._open, self._n = told
        self.held = []

    def _begins(self, kind: str, *, is_call: bool) -> bool:
        """Whether text of this kind begins a block, which is then the open one."""
        if self._open is not None and self._open.kind == kind and not is_call:
            return False
        self._open = OpenBlock(self._n, kind, new_call_id() if is_call else "")
        self._n += 1
        return True
