"""What an answer is to whoever sends it: a whole, or frames event by event. Knows no wire."""

from collections.abc import Sequence
from typing import Protocol

from ..stream.jobs import Event
from ..stream.stream import CompletionStream


class Encoder(Protocol):
    """One walk through the events of an answer."""

    def frames(self, events: Sequence[Event]) -> bytes:
        """The frames of the next batch; b"" when there is nothing to say."""
        ...

    def closing(self, stream: CompletionStream) -> bytes:
        """The frames after those of the last batch."""
        ...


class Answer(Protocol):
    """The shape of one request's answer, as JSON and as events."""

    @property
    def id(self) -> str: ...

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        """The answer of a stream that has ended, from all its events."""
        ...

    def encoder(self) -> Encoder: ...
