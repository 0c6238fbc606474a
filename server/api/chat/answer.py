"""The choices of a chat's answer, whole or in chunks.

Owns the order of chunks in a choice: the role, the reply in pieces, the reason of its end. Knows
the replies by what they add, not by what they are made of.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...answer.choices import by_choice
from ...stream.jobs import Begun, CompletionJob, Event, Step
from .chunks import ReplyChunks
from .message import WholeReply
from .reply import PlainReader, Reader, ReplyShape


class ChatChoices:
    """Those of one request."""

    def __init__(
        self, jobs: Sequence[CompletionJob], new_reader: Callable[[], Reader], shape: ReplyShape
    ) -> None:
        """`jobs`: one per choice, in order. `new_reader`: makes what reads one reply."""
        self.n_reasoning = 0
        self.is_plain = False
        self._jobs = jobs
        self._new_reader = new_reader
        self._shape = shape
        self._reply: ReplyChunks | None = None  # the running one
        self._n_earlier = 0  # tokens of reasoning in the replies before it

    @property
    def is_text_alone(self) -> bool:
        return self._shape.is_text_alone

    def whole(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        choices = []
        for index, one in sorted(by_choice(events).items()):
            reply = WholeReply(self._new_reader(), self._shape)
            choices.append(reply.choice(one, self._jobs[index]))
            self.n_reasoning += reply.n_reasoning
        return choices

    def begin(self, begun: Begun) -> Sequence[dict[str, Any]]:
        reader = self._new_reader()
        self.is_plain = isinstance(reader, PlainReader)
        self._n_earlier = self.n_reasoning
        self._reply = ReplyChunks(begun.choice, reader, self._shape)
        return (self._reply.first(begun, self._jobs[begun.choice]),)

    def add(self, step: Step) -> Sequence[dict[str, Any] | str]:
        reply = self._running
        added = [*reply.choices(step)]
        self.n_reasoning = self._n_earlier + reply.n_reasoning
        return added

    def go_back(self, steps: Sequence[Step]) -> None:
        reader = self._new_reader()
        self._running.go_back(reader, steps)
        self.n_reasoning = self._n_earlier + self._running.n_reasoning

    def of_text(self, text: str) -> dict[str, Any]:
        return self._running.of_text(text)

    @property
    def _running(self) -> ReplyChunks:
        assert self._reply is not None, "a reply begins before its first step"
        return self._reply
