"""The audit ring of the server under test: what the engine said for each request, and when.

Owns the last ended streams as plain data. Does not know what they are compared with.
"""

import time
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from typing_extensions import override

from server.errors import QueueTimeoutError
from server.stream.feed import Feed
from server.stream.jobs import Begun, Event, Step
from server.stream.stream import CompletionStream

# For the planted bug: the unread bytes (150 events) that the engine waits for, and how long.
_BEHIND_BYTES = 150 * 512
_HELD_S = 3.0


class AuditedFeed(Feed[Event]):
    """A feed that counts everything said on it, read or not."""

    newest: "ClassVar[AuditedFeed]"
    """The feed of the request that was queued last."""
    waits_for_readers = False
    """A planted bug: the engine goes on only when its client has read."""
    n_letters = 0
    crc = 0
    prefilled: float | None = None
    """Seconds since the request was queued."""
    ended = False
    error: Exception | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        AuditedFeed.newest = self

    @override
    def append(self, item: Event) -> None:
        self._count(item)
        super().append(item)
        if AuditedFeed.waits_for_readers and self.unread_bytes > _BEHIND_BYTES:
            AuditedFeed.waits_for_readers = False  # so that nobody waits for ever
            time.sleep(_HELD_S)

    @override
    def extend(self, items: Sequence[Event]) -> None:
        for item in items:
            self._count(item)
        super().extend(items)

    @override
    def end(self, items: Sequence[Event] = (), *, error: Exception | None = None) -> None:
        for item in items:
            self._count(item)
        super().end(items, error=error)
        self._note_end(error)

    @override
    def give_up(self, error: Exception) -> None:
        super().give_up(error)
        self.ended, self.error = True, error

    def _note_end(self, error: Exception | None) -> None:
        if not self.ended:
            self.ended, self.error = True, error

    def _count(self, item: Event) -> None:
        if isinstance(item, Step):
            text = item.result.chunk
            self.n_letters += len(text)
            self.crc = zlib.crc32(text.encode(), self.crc)
        elif isinstance(item, Begun):
            self.prefilled = item.clock


class Audit:
    """Streams from the queue to their end. On the event loop; `sweep` is called periodically."""

    def __init__(self, *, ring: int) -> None:
        """`ring`: how many ended streams are kept."""
        self._live: list[tuple[CompletionStream, AuditedFeed]] = []
        self._ended: deque[dict[str, Any]] = deque(maxlen=ring)
        self._n_ended = 0

    def add(self, stream: CompletionStream) -> None:
        """Call it right after the stream was made, on the same thread."""
        self._live.append((stream, AuditedFeed.newest))

    def sweep(self) -> None:
        """Moves the streams that have ended into the ring."""
        live, self._live = self._live, []
        for stream, feed in live:
            # The feed ends after the engine was released.
            if stream.ticket.freed_at is not None and feed.ended:
                self._n_ended += 1
                self._ended.append({"n": self._n_ended, **_record(stream, feed)})
            else:
                self._live.append((stream, feed))

    def ended(self, *, after: int) -> list[dict[str, Any]]:
        """Those with a number above `after`, in the order of their ends."""
        return [record for record in self._ended if record["n"] > after]


def _record(stream: CompletionStream, feed: AuditedFeed) -> dict[str, Any]:
    ticket = stream.ticket
    return {
        "prompt": list(stream.jobs[0].input_ids[:64]),
        "n_letters": feed.n_letters,
        "crc": feed.crc,
        "key": ticket.key,
        "queued_at": ticket.queued_at,
        "admitted_at": ticket.admitted_at,
        "prefilled_at": None if feed.prefilled is None else ticket.queued_at + feed.prefilled,
        "cancelled_at": ticket.cancelled_at,
        "freed_at": ticket.freed_at,
        "reasons": [end.eos_reason for end in stream.ends],
        "expired": isinstance(feed.error, QueueTimeoutError),
    }
