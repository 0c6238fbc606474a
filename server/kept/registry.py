"""The kept answers of all callers: who may see which, and which are given up first.

Owns memory and time. Unknown, given up and somebody else's are the same here, found in the same
way. Used on the event loop.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial

from ..errors import StreamNotFoundError, UnavailableError
from .files import KeptFiles
from .kept import Kept
from .recent import RecentStreams
from .streams import KeptStream

# Time for the engine to leave its step when the server ends.
_LEAVE_S = 0.3
# The share of the memory that may hold streams unpacked.
_UNPACKED_SHARE = 1 / 16


class KeptStreams:
    """By caller and id. An answer has its own id and, with several choices, one per choice."""

    def __init__(
        self,
        *,
        keeps: str,
        max_bytes: int,
        seconds: float,
        clock: Callable[[], float],
        files: KeptFiles | None = None,
    ) -> None:
        """`keeps`: all, stored or none. `seconds`: since somebody last read it. `files`: where they
        outlive the process.
        """
        self._keeps = keeps
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._files = files
        # The least recently read first.
        self._answers: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._streams: dict[tuple[str, str], tuple[Kept, KeptStream]] = {}
        self._read_at: dict[tuple[str, str], float] = {}
        # Bytes of those that do not change by themselves, and the others: a lookup adds up few.
        self._sizes: dict[tuple[str, str], int] = {}
        self._n_sized = 0
        self._moving: dict[tuple[str, str], Kept] = {}
        self._recent = RecentStreams(int(max_bytes * _UNPACKED_SHARE))
        self._last_ns = 0

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
        moving = sum(kept.n_bytes for kept in self._moving.values())
        return self._n_sized + self._recent.n_bytes + moving

    async def load(self) -> None:
        """Take in what earlier processes left in the directory."""
        if self._files is None:
            return
        for kept, age in await asyncio.to_thread(self._files.load):
            self._last_ns = max(self._last_ns, kept.begun_ns)
            self._add(kept, self._clock() - age)
        self.trim()

    def add(self, kept: Kept) -> None:
        self._last_ns = kept.begun_ns = max(time.time_ns(), self._last_ns + 1)
        self._add(kept, self._clock())
        self.trim()

    def stream(self, key: str, id_: str) -> tuple[Kept, KeptStream]:
        """The caller's stream of that id. Raises StreamNotFoundError."""
        self.trim()
        found = self._streams.get((key, id_))
        if found is None:
            raise _not_found()
        self._touch(found[0])
        return found

    def has(self, key: str, id_: str) -> bool:
        """Whether the caller has a stream of that id. Does not count as reading it."""
        return (key, id_) in self._streams

    def answer(self, key: str, id_: str) -> Kept:
        """The caller's answer of that id, or of one of its streams. Raises StreamNotFoundError."""
        self.trim()
        kept = self._answers.get((key, id_))
        if kept is None:
            return self.stream(key, id_)[0]
        self._touch(kept)
        return kept

    def answers(self, key: str) -> Iterator[Kept]:
        """The caller's, those that were begun first first. Does not count as reading them."""
        self.trim()
        own = [kept for kept in self._answers.values() if kept.request.key == key]
        yield from sorted(own, key=lambda kept: kept.begun_ns)

    def changed(self, kept: Kept) -> None:
        """Something other than its walk has changed it, or its walk goes on."""
        self._weigh(kept)
        if kept.ended or kept.is_put_down or kept.paused() is not None:
            self._write(kept)

    async def written(self, kept: Kept) -> None:
        """Wait until a stream that was just paused is in the directory, if there is one."""
        if self._files is not None:
            await kept.rest()
            await self._files.written()

    def delete(self, kept: Kept) -> None:
        """End it and forget it."""
        self._drop(kept, "the stream was deleted")

    def trim(self) -> None:
        """Forget what nobody has read for too long, and what is too much. What runs stays."""
        now, n_bytes, given_up = self._clock(), self.n_bytes, list[Kept]()
        for id_, kept in self._answers.items():
            is_late = now >= self._read_at[id_] + self._seconds
            if not is_late and n_bytes <= self._max_bytes:
                break
            if kept.ended or kept.is_put_down:
                n_bytes -= kept.n_bytes
                given_up.append(kept)
        for kept in given_up:
            self._drop(kept, "the stream was given up: others needed its room, or nobody read it")

    async def put_down(self, *, until: float) -> None:
        """If there is a directory, pause all that runs or waits, for the next process. What gets no
        token until `until`, a time of the event loop, goes on.
        """
        if self._files is None:
            return
        answers = list(self._answers.values())
        for kept in answers:
            kept.leave_queue()
        await asyncio.gather(*(kept.put_down(until=until) for kept in answers))

    async def close(self) -> None:
        """End all that runs."""
        await self.put_down(until=asyncio.get_running_loop().time() + _LEAVE_S)
        answers = list(self._answers.values())
        for kept in answers:
            if not kept.is_put_down:
                kept.cancel(UnavailableError("the server is shutting down"))
        for kept in answers:
            await kept.closed()
        if self._files is not None:
            await self._files.close()

    def _add(self, kept: Kept, read_at: float) -> None:
        key = kept.request.key
        self._answers[key, kept.id] = kept
        self._read_at[key, kept.id] = read_at
        for stream in kept.streams:
            self._streams[key, stream.id] = kept, stream
            stream.on_unpacked = partial(self._recent.used, stream)
        self._weigh(kept)
        kept.on_rest = lambda: self._rested(kept)

    def _weigh(self, kept: Kept) -> None:
        id_ = kept.request.key, kept.id
        self._n_sized -= self._sizes.pop(id_, 0)
        self._moving.pop(id_, None)
        if id_ not in self._answers:
            return
        if kept.ended or kept.is_put_down:
            self._sizes[id_] = kept.n_bytes
            self._n_sized += self._sizes[id_]
        else:
            self._moving[id_] = kept

    def _rested(self, kept: Kept) -> None:
        self._weigh(kept)
        self._write(kept)
        self.trim()

    def _write(self, kept: Kept) -> None:
        read_at = self._read_at.get((kept.request.key, kept.id))
        if self._files is not None and read_at is not None:
            self._files.put(kept, age=self._clock() - read_at)

    def _touch(self, kept: Kept) -> None:
        id_ = kept.request.key, kept.id
        self._answers.move_to_end(id_)
        self._read_at[id_] = self._clock()
        if self._files is not None:
            self._files.touch(kept)

    def _drop(self, kept: Kept, why: str) -> None:
        self._forget(kept)
        kept.cancel(StreamNotFoundError(why))

    def _forget(self, kept: Kept) -> None:
        key = kept.request.key
        if self._answers.pop((key, kept.id), None) is None:
            return
        del self._read_at[key, kept.id]
        self._weigh(kept)
        for stream in kept.streams:
            del self._streams[key, stream.id]
            stream.on_unpacked = stream.let_go
            stream.let_go()
            self._recent.forget(stream)
        if self._files is not None:
            self._files.remove(kept)


def _not_found() -> StreamNotFoundError:
    return StreamNotFoundError(
        "no such stream: it was not kept, or it has been given up since; send store: true to keep "
        "one, and GET /v1/streams to list them"
    )
