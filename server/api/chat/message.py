"""A reply as a whole: the message that all its parts make.

Owns the shape of the assistant's message. Its parts are those that a stream would have sent.
"""

from typing import Any

from engine import ReplyDelta

from ...answer.choices import ChoiceEvents
from ...stream.jobs import CompletionJob, Step
from .reply import Reader, ReplyShape, channel, new_call_id


class WholeReply:
    """One choice, put together piece by piece."""

    def __init__(self, reader: Reader, shape: ReplyShape) -> None:
        self._reader = reader
        self._shape = shape
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, list[str]]] = []  # the name, the pieces of the arguments
        self._logprobs: dict[str, Any] = {"content": [], "refusal": None}
        self.n_reasoning = 0
        """Tokens of reasoning, the marks around it included."""

    def choice(self, events: ChoiceEvents, job: CompletionJob) -> dict[str, Any]:
        """The choice of the answer, from all its events."""
        for piece in events.pieces:
            self._add(piece)
        return {
            "index": events.begun.choice,
            "message": self._message(),
            "logprobs": self._logprobs if self._shape.logprobs else None,
            **self._shape.ending(events.pieces[-1], self._reader),
            **self._shape.opening(events.begun, job),
            **self._shape.ids(events.pieces),
            **self._shape.events(events.pieces),
        }

    def _add(self, piece: Step) -> None:
        for part in self._reader.read(piece.result):
            if part.kind == "reasoning":
                self.n_reasoning += len(part.tokens)
            if part.text:
                self._add_text(part)
            if part.tokens and self._shape.logprobs:
                entries = self._shape.entries(part.tokens, piece.clock)
                self._logprobs.setdefault(channel(part), []).extend(entries)

    def _add_text(self, part: ReplyDelta) -> None:
        if part.kind == "content":
            self._content.append(part.text)
        elif part.kind == "reasoning":
            self._reasoning.append(part.text)
        elif part.kind == "tool_name":
            self._calls.append((part.text, []))
        else:
            self._calls[part.call][1].append(part.text)

    def _message(self) -> dict[str, Any]:
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        calls = [{"name": name, "arguments": "".join(pieces)} for name, pieces in self._calls]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not calls else None,
            "refusal": None,
        }
        if reasoning:
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls and self._shape.legacy_call:
            message["function_call"] = calls[0]
        elif calls:
            message["tool_calls"] = [
                {"id": new_call_id(), "type": "function", "function": call} for call in calls
            ]
        return message
