"""The answer of /v1/responses, as a whole or in events."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from ...answer.choices import by_choice
from ...answer.sse import encode_json
from ...stream.jobs import Event
from ...stream.stream import CompletionStream
from .events import ResponseEvents
from .response import ResponseBase


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseAnswer(ResponseBase):
    """The answer to one request."""

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        (choice,) = by_choice(events).values()
        items = self.items()
        items.read(choice.pieces)
        if not items.listed:
            items.begin_empty()
        return encode_json(self.ended(stream, items, choice.begun, choice.pieces))

    @override
    def encoder(self) -> ResponseEvents:
        return ResponseEvents(self)
