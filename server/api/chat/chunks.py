"""A reply as the chunks of a stream: what each of them adds.

Owns the shape of deltas. Clients join the strings of all chunks, so the role, and the id, type and
name of a call, are said once; nothing but what is to be joined stands in a delta.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from engine import ReplyDelta

from ...stream.jobs import Begun, CompletionJob, Step
from .reply import Reader, ReplyShape, channel, new_call_id


class ReplyChunks:
    """The choices of one reply's chunks, in order."""

    def __init__(self, index: int, reader: Reader, shape: ReplyShape) -> None:
        self._index = index
        self._reader = reader
        self._shape = shape
        self.n_reasoning = 0
        """Tokens of reasoning so far, the marks around it included."""

    def first(self, begun: Begun, job: CompletionJob) -> dict[str, Any]:
        """It alone names the role."""
        opening = self._shape.opening(begun, job)
        return {**self._choice({"role": "assistant", "content": ""}), **opening}

    def of_text(self, text: str) -> dict[str, Any]:
        """Of a chunk that says some content and nothing else."""
        return self._choice({"content": text})

    def choices(self, piece: Step) -> Iterator[dict[str, Any] | str]:
        """What `piece` adds; content of which nothing else is to be said, as its text. Nothing
        while the text is held.
        """
        shape = self._shape
        # Said once, with the first chunk of the piece.
        more = {**shape.ids([piece]), **shape.events([piece])}
        for part in self._reader.read(piece.result):
            if part.kind == "reasoning":
                self.n_reasoning += len(part.tokens)
            if not part.text and not (part.tokens and shape.logprobs):
                continue
            if part.kind == "content" and shape.is_text_alone:
                yield part.text
            else:
                choice = self._choice(self._delta(part), self._logprobs(part, piece.clock))
                yield {**choice, **more}
                more = {}
        if piece.result.eos:
            yield {**self._choice({}), **shape.ending(piece, self._reader), **more}
        elif any(more.values()):
            yield {**self._choice({}), **more}

    def go_back(self, reader: Reader, steps: Sequence[Step]) -> None:
        """Read on with `reader`, a new one, after `steps`."""
        self._reader, self.n_reasoning = reader, 0
        for step in steps:
            for part in reader.read(step.result):
                self.n_reasoning += len(part.tokens) if part.kind == "reasoning" else 0

    def _choice(
        self, delta: dict[str, Any], logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def _logprobs(self, part: ReplyDelta, clock: float) -> dict[str, Any] | None:
        if not self._shape.logprobs:
            return None
        entries = self._shape.entries(part.tokens, clock)
        return {"content": [], "refusal": None, channel(part): entries}

    def _delta(self, part: ReplyDelta) -> dict[str, Any]:
        if not part.text:
            return {}  # a mark around reasoning or a call
        if part.kind == "content":
            return {"content": part.text}
        if part.kind == "reasoning":
            return {"reasoning_content": part.text, "reasoning": part.text}
        begins = part.kind == "tool_name"
        function = {"name": part.text, "arguments": ""} if begins else {"arguments": part.text}
        if self._shape.legacy_call:
            return {"function_call": function}
        identity = {"id": new_call_id(), "type": "function"} if begins else {}
        return {"tool_calls": [{"index": part.call, **identity, "function": function}]}
