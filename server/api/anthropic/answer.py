"""The answer of /v1/messages, as a whole or in events."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from ...answer.choices import by_choice
from ...answer.metadata import closing_fields, ending_fields
from ...answer.sse import encode_json
from ...stream.jobs import Event
from ...stream.stream import CompletionStream
from .blocks import OpenBlock
from .events import MessageEvents
from .message import Message, begun_block, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAnswer(Message):
    """The answer to one request."""

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        (choice,) = by_choice(events).values()
        blocks, listed = self.blocks(self.new_reader()), list[OpenBlock]()
        for step in choice.pieces:
            for piece in blocks.pieces(step):
                if piece.begins:
                    listed.append(piece.block)
                piece.block.texts.append(piece.text)
                piece.block.logprobs += piece.logprobs
        last = choice.pieces[-1]
        return encode_json(
            {
                **self.message,
                "content": [self._block(block) for block in listed],
                **self.ending(last, blocks.reader),
                "usage": usage(stream.counts),
                **self.opening(choice.begun),
                **self.events_of(choice.pieces),
                **ending_fields(last, self.shape.include),
                **closing_fields(stream, self.shape.include),
                **self.once,
            }
        )

    @override
    def encoder(self) -> MessageEvents:
        return MessageEvents(self)

    def _block(self, block: OpenBlock) -> dict[str, Any]:
        text = "".join(block.texts)
        said = begun_block(block)
        if block.kind == "tool_use":
            said |= _input(text)
        else:
            said[block.kind] = text
        if self.shape.logprobs:
            said["logprobs"] = block.logprobs
        return said


def _input(text: str) -> Mapping[str, Any]:
    """The input of a call; if it was cut off, as far as it came."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    return {"input": value} if isinstance(value, dict) else {"input": {}, "partial_json": text}
