"""What an answer is to whoever sends it: a whole, or frames event by event. Knows no wire."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..stream.jobs import CompletionJob, Event
from ..stream.stream import CompletionStream


class Encoder(Protocol):
    """One walk through the events of an answer."""

    def frames(self, events: Sequence[Event]) -> bytes:
        """The frames of the next batch; b"" when there is nothing to say."""
        ...

    def closing(self, stream: CompletionStream) -> bytes:
        """The frames after those of the last batch."""
        ...

    def failed(self, error: Exception) -> bytes:
        """The last frame of a stream that fails, instead of those."""
        ...


class Answer(Protocol):
    """The shape of one request's answer, as JSON and as events."""

    @property
    def id(self) -> str: ...

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        """The answer of a stream that has ended, from all its events."""
        ...

    def encoder(self) -> Encoder: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer(ABC):
    """The answer to a request for text, whatever the wire."""

    head: dict[str, Any]
    """Its `id`, `model` and `created`, among what each chunk begins with."""
    once: dict[str, Any]
    """In the whole answer, or in the first chunk: warnings and the like."""
    jobs: Sequence[CompletionJob]

    @property
    def id(self) -> str:
        return str(self.head["id"])

    @abstractmethod
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        """As `Answer` has it."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """As `Answer` has it."""
