"""The kept answers of all callers: who may see which, and which are given up first.

Owns memory and time. Unknown, given up and somebody else's are the same here, found in the same
way. Used on the event loop.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from ..errors import StreamNotFoundError, UnavailableError
from .kept import Kept, KeptStream


class KeptStreams:
    """By caller and id. An answer has its own id and, with several choices, one per choice."""

    def __init__(
        self,
        *,
        keeps: str,
        max_bytes: int,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """`keeps`: all, stored or none. `seconds`: since somebody last read it."""
        self._keeps = keeps
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        # The least recently read first.
        self._answers: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._streams: dict[tuple[str, str], tuple[Kept, KeptStream]] = {}
        self._read_at: dict[tuple[str, str], float] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._n_added = 0

    def keeps(self, store: bool | None) -> bool:
        """Whether an answer is kept whose request says so much about it."""
        if self._keeps == "none":
            return False
        return bool(store) if self._keeps == "stored" else store is not False

    @property
    def can_keep(self) -> bool:
        return self._keeps != "none"

    @property
    def n_bytes(self) -> int:
        return sum(kept.n_bytes for kept in self._answers.values())

    def add(self, kept: Kept) -> None:
        key = kept.request.key
        self._answers[key, kept.id] = kept
        self._numbers[key, kept.id] = self._n_added
        self._n_added += 1
        self._read_at[key, kept.id] = self._clock()
        for stream in kept.streams:
            self._streams[key, stream.id] = kept, stream
        kept.on_ended = self.trim
        self.trim()

    def stream(self, key: str, id_: str) -> tuple[Kept, KeptStream]:
        """The caller's stream of that id. Raises StreamNotFoundError."""
        self._expire()
        found = self._streams.get((key, id_))
        if found is None:
            raise _not_found()
        self._touch(found[0])
        return found

    def answer(self, key: str, id_: str) -> Kept:
        """The caller's answer of that id, or of one of its streams. Raises StreamNotFoundError."""
        self._expire()
        kept = self._answers.get((key, id_))
        if kept is None:
            return self.stream(key, id_)[0]
        self._touch(kept)
        return kept

    def answers(self, key: str) -> Iterator[Kept]:
        """The caller's, those that were begun first first. Does not count as reading them."""
        self._expire()
        own = [kept for kept in self._answers.values() if kept.request.key == key]
        yield from sorted(own, key=lambda kept: self._numbers[key, kept.id])

    def delete(self, kept: Kept) -> None:
        """End it and forget it."""
        kept.cancel(StreamNotFoundError("the stream was deleted"))
        self._forget(kept)

    def trim(self) -> None:
        """Forget what nobody has read for too long, and what is too much. What runs stays."""
        self._give_up(self.n_bytes - self._max_bytes)

    def _expire(self) -> None:
        """Forget what nobody has read for too long. Every request does this, so it counts no bytes,
        which takes a millisecond for a thousand streams.
        """
        self._give_up(0)

    def _give_up(self, n_bytes: int) -> None:
        """Forget what is late, and then so much memory."""
        now = self._clock()
        for id_, kept in list(self._answers.items()):
            if n_bytes <= 0 and now < self._read_at[id_] + self._seconds:
                break
            if kept.ended:
                n_bytes -= kept.n_bytes
                self._forget(kept)

    async def close(self) -> None:
        """End all that runs."""
        answers = list(self._answers.values())
        for kept in answers:
            kept.cancel(UnavailableError("the server is shutting down"))
        for kept in answers:
            await kept.closed()

    def _touch(self, kept: Kept) -> None:
        id_ = kept.request.key, kept.id
        self._answers.move_to_end(id_)
        self._read_at[id_] = self._clock()

    def _forget(self, kept: Kept) -> None:
        key = kept.request.key
        if self._answers.pop((key, kept.id), None) is None:
            return
        del self._read_at[key, kept.id], self._numbers[key, kept.id]
        for stream in kept.streams:
            del self._streams[key, stream.id]


def _not_found() -> StreamNotFoundError:
    return StreamNotFoundError(
        "no such stream: it was not kept, or it has been given up since; send store: true to keep "
        "one, and GET /v1/streams to list them"
    )
