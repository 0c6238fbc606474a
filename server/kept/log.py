"""The numbered events of one answer, for any number of readers. Used on the event loop only.

Owns numbering and waiting. An event is its frame, as the first reader gets it; blocks of older ones
are compressed, because frames repeat each other.
"""

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence

from ..stream.idle_timeout import IdleTimeout
from ..stream.jobs import Controlled, Event
from .unpacking import undamaged, unpacked

_BLOCK = 64  # events
_LEVEL = 3
_END = b"\n\n"
# Whole blocks that are ready for readers who come later, and how many of them one gets at once.
_N_READY = 32
_BLOCKS_AT_ONCE = 4
# The first reader gets what comes at once: the stream itself rests between batches. Later readers
# rest together, the longer the more of them there are, so that each batch is made once: all of them
# cost the event loop, which shares its cores with the engine, no more than one or two.
_LATER_REST_S = 0.01


class EventLog:
    """Events from 1 on. A reader that has n of them gets the rest, then those that come."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._last: list[bytes] = []
        self._waiters: list[asyncio.Future[bool]] = []
        self._n_readers = 0
        self._resting: list[asyncio.Future[bool]] = []
        self._ready: OrderedDict[int, bytes] = OrderedDict()  # blocks with their numbers
        # The last page that is no whole block: the events before it, itself, and its events.
        self._shared: tuple[int, bytes, int] | None = None
        self.n_events = 0
        self.n_bytes = 0
        """Memory of the events."""
        self.ended = False
        self._left: Exception | None = None

    @classmethod
    def of(cls, blocks: Sequence[bytes], *, ended: bool) -> "EventLog":
        """The events that `packed` gave. Raises zlib.error."""
        log = cls()
        log._blocks, log.ended = list(blocks), ended
        if blocks:
            last = _frames(blocks[-1])
            log.n_events = _BLOCK * (len(blocks) - 1) + len(last)
            if not ended and len(last) < _BLOCK:
                del log._blocks[-1]
                log._last = last
        log.n_bytes = sum(map(len, (*log._blocks, *log._last)))
        return log

    def packed(self) -> list[bytes]:
        """All events, in blocks."""
        last = b"".join(self._last)
        return [*self._blocks, *([zlib.compress(last, _LEVEL)] if last else ())]

    def append(self, frames: bytes) -> None:
        """Add whole frames, and wake the readers."""
        fresh = [frame + _END for frame in frames.split(_END) if frame]
        if not fresh:
            return
        self._last += fresh
        self.n_events += len(fresh)
        self.n_bytes += sum(map(len, fresh))
        while len(self._last) > _BLOCK:
            self._pack(self._last[:_BLOCK])
            del self._last[:_BLOCK]
        self._wake()

    def end(self) -> None:
        """No event comes any more."""
        self.ended = True
        if self._last:
            self._pack(self._last)
            self._last = []
        self._wake()
        self._end_rest()

    def leave(self, error: Exception) -> None:
        """Nobody waits here for the next event: who does gets `error`."""
        self._left = error
        self._wake()

    def page(self, after: int) -> Sequence[bytes]:
        """Some of the events after the first `after`; none only if there are none. Raises
        StreamStateError if they are damaged.
        """
        block, start = divmod(after, _BLOCK)
        if block < len(self._blocks):
            return self._frames(block)[start:]
        return [] if self.ended else self._last[after - len(self._blocks) * _BLOCK :]

    def numbered(self, after: int) -> tuple[bytes, int]:
        """Some of the events after the first `after`, each behind its number, and how many."""
        first, start = divmod(after, _BLOCK)
        n_whole = self.n_events // _BLOCK if self.ended else len(self._blocks)
        if start or first >= n_whole:
            if self._shared is None or self._shared[0] != after:
                page = self.page(after)
                if not page:
                    return b"", 0
                self._shared = after, _numbered(page, after), len(page)
            return self._shared[1:]
        blocks = range(first, min(first + _BLOCKS_AT_ONCE, n_whole))
        return b"".join([self._whole_block(block) for block in blocks]), _BLOCK * len(blocks)

    async def begun(self) -> None:
        """Wait for the first event, or the end."""
        while not self.n_events and not self.ended:
            await self._change()

    async def changed(self, since: int) -> None:
        """Wait for more events than `since`, or the end. Whoever looks before waiting counts the
        events before looking: one may come before the wait begins.
        """
        while self.n_events <= since and not self.ended:
            await self._change()

    async def whole(self) -> None:
        """Wait for the end."""
        while not self.ended:
            await self._change()

    async def read(self, *, after: int = 0, idle: float | None = None) -> AsyncIterator[bytes]:
        """The events after the first `after`, in batches, to the end; b"" after `idle` seconds
        without one. For the client that asked for the answer, and those whose events have numbers
        of their own.
        """
        while True:
            page, ended = self.page(after), self.ended
            if page:
                after += len(page)
                yield b"".join(page)
                if after < len(self._blocks) * _BLOCK or self.ended:
                    await asyncio.sleep(0)
            elif ended:
                return
            elif not await self._change(idle):
                yield b""

    async def read_numbered(self, after: int, *, idle: float | None = None) -> AsyncIterator[bytes]:
        """The events after the first `after`, each behind its number, like `read`. For any number
        of readers.
        """
        self._n_readers += 1
        try:
            while True:
                ended = self.ended
                page, n = self.numbered(after)
                if n:
                    after += n
                    yield page
                    if after < len(self._blocks) * _BLOCK or self.ended:
                        await asyncio.sleep(0)
                    else:
                        await self._rest()
                elif ended:
                    return
                elif not await self._change(idle):
                    yield b""
        finally:
            self._n_readers -= 1
            if not self._n_readers:
                self._ready.clear()
                self._shared = None

    def _frames(self, block: int) -> list[bytes]:
        with undamaged():
            return _frames(self._blocks[block])

    def _whole_block(self, block: int) -> bytes:
        """With numbers; readers who are there at the same time share it."""
        ready = self._ready.get(block)
        if ready is None:
            ready = self._ready[block] = _numbered(self._frames(block), block * _BLOCK)
            if len(self._ready) > _N_READY:
                self._ready.popitem(last=False)
        return ready

    def _pack(self, frames: Sequence[bytes]) -> None:
        whole = b"".join(frames)
        packed = zlib.compress(whole, _LEVEL)
        self._blocks.append(packed)
        self.n_bytes += len(packed) - len(whole)

    async def _change(self, idle: float | None = None) -> bool:
        """Wait for an event or the end; False: it did not come within `idle` seconds. Raises what
        `leave` was given.
        """
        if self._left is not None:
            raise self._left
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        with IdleTimeout(idle, lambda: _settle(waiter, False)) as timeout:
            timeout.start()
            return await waiter

    async def _rest(self) -> None:
        """Until all who rest go on, or the end."""
        loop = asyncio.get_running_loop()
        if not self._resting:
            loop.call_later(_LATER_REST_S * self._n_readers, self._end_rest)
        waiter: asyncio.Future[bool] = loop.create_future()
        self._resting.append(waiter)
        await waiter

    def _end_rest(self) -> None:
        resting, self._resting = self._resting, []
        for waiter in resting:
            _settle(waiter, True)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _settle(waiter, True)


def _frames(block: bytes) -> list[bytes]:
    return [frame + _END for frame in unpacked(block).split(_END)[:-1]]


def _numbered(frames: Sequence[bytes], after: int) -> bytes:
    return b"".join([b"id: %d\n%b" % pair for pair in enumerate(frames, after + 1)])


def _settle(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


def parts_of(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """The events, divided after each that has a number of its own."""
    start = 0
    for i, event in enumerate(events, 1):
        if isinstance(event, Controlled) or i == len(events):
            yield events[start:i]
            start = i
