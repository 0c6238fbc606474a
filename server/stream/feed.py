"""A queue from the engine thread to one reader on the event loop.

Owns the way between them; knows nothing of the items.

The thread never waits for the reader. Unread items are kept, so a slow reader costs memory, up to a
bound, but no engine time. The event loop is woken only when the reader waits, once for all items
since. A reader that keeps up rests between batches that follow each other fast, so that fast tokens
arrive several at once. Waking the event loop for each of them would cost the engine, which shares
its cores, a third of the speed of small models.

The next item after the time of a rest ends it, not a timer, which would wake the event loop once
more when nothing has come. A timer is there only for an item that none follows.
"""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, NoReturn, TypeVar

from .idle_timeout import IdleTimeout

T = TypeVar("T")

# True: an item has come, or the end. False: the time is over.
_Waiter = asyncio.Future[bool]

# A batch costs a processor tens to hundreds of microseconds, mostly because nothing that it needs
# is in a cache. Nobody who reads tells 125 of them a second from more.
_REST_S = 0.008
# Largest batch for a reader that is behind: its work on a batch holds up the event loop. What a
# fast model makes during a rest, with logprobs, must fit, or it would be sent in pieces.
_BATCH_BYTES = 64 * 1024


class FeedFullError(Exception):
    """More is unread than may be kept. The items until then are kept."""


class Feed(Generic[T]):
    """Items in order of arrival, each taken once. Made on its reader's event loop."""

    def __init__(
        self, *, size_of: Callable[[T], int] = lambda _: 0, max_bytes: float = math.inf
    ) -> None:
        """`size_of`: about how much memory an item takes; `max_bytes`: limit for unread items."""
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # guards the fields below
        self._items: list[T] = []
        self._n_bytes = 0
        self._waiters: list[_Waiter] = []
        self._end_waiters: list[_Waiter] = []  # they do not care for items
        self._rest_until = 0.0  # on the event loop's clock; no item before it wakes anybody
        self._ended = False
        self._error: Exception | None = None

    @property
    def unread_bytes(self) -> int:
        return self._n_bytes

    def append(self, item: T) -> None:
        """Add an item. From any thread. Raises FeedFullError."""
        n_bytes = self._size_of(item)
        with self._lock:
            if self._ended:
                return
            self._items.append(item)
            self._n_bytes += n_bytes
            waiters = self._due()
        if waiters:
            self._wake(waiters)
        if self._n_bytes > self._max_bytes:
            self._overflow()

    def extend(self, items: Sequence[T]) -> None:
        """Add several items, which end a rest. From any thread. Raises FeedFullError."""
        n_bytes = sum(map(self._size_of, items))
        with self._lock:
            if self._ended:
                return
            self._items.extend(items)
            self._n_bytes += n_bytes
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)
        if self._n_bytes > self._max_bytes:
            self._overflow()

    def end(self, items: Sequence[T] = (), *, error: Exception | None = None) -> None:
        """Add the last items and end the feed, with `error` if one ended it. From any thread.

        Items after the end are dropped.
        """
        with self._lock:
            if self._ended:
                return
            self._items.extend(items)
            waiters = self._close(error)
        self._wake(waiters)

    def give_up(self, error: Exception) -> None:
        """Drop what is unread and end the feed: from now on a reader gets only `error`."""
        with self._lock:
            self._items, self._n_bytes = [], 0
            waiters = self._close(error)
        self._wake(waiters)

    async def begun(self) -> None:
        """Wait for the first item without taking it. Raises an error that ended the feed first."""
        while True:
            # One critical section: an item that came in between would not wake this reader.
            with self._lock:
                if self._ended or self._items:
                    break
                waiter = self._new_waiter(self._waiters)
            await waiter
        if not self._items and self._error is not None:
            raise self._error

    async def whole(self) -> list[T]:
        """Wait for the end, and take all items. Raises the error that ended the feed."""
        with self._lock:
            waiter = None if self._ended else self._new_waiter(self._end_waiters)
        if waiter is not None:
            await waiter
        if self._error is not None:
            raise self._error
        items, self._items, self._n_bytes = self._items, [], 0
        return items

    async def batches(self, *, idle: float | None = None) -> AsyncIterator[Sequence[T]]:
        """Take all items, in batches of what has come since the last one, up to a size.

        Yields an empty sequence after `idle` seconds without items. After the last item, raises the
        error that ended the feed, if any.
        """
        waiter: _Waiter | None = None
        taken_at = -math.inf  # when the reader last had worked on all that had come
        with IdleTimeout(idle, lambda: _settle([waiter] if waiter else [], False)) as idle_timeout:
            while True:
                with self._lock:
                    fresh = self._take()
                    is_behind = bool(self._items)
                    ended = self._ended and not is_behind
                    waiter = None if fresh or ended else self._new_waiter(self._waiters)
                if waiter is not None:
                    idle_timeout.start()
                    woken = await waiter
                    idle_timeout.stop()
                    if not woken:
                        yield ()
                    continue
                if fresh:
                    yield fresh
                if ended:
                    break
                if is_behind:
                    await asyncio.sleep(0)
                    continue
                before, taken_at = taken_at, self._loop.time()
                if taken_at < before + 2 * _REST_S:
                    await self._rest(taken_at)
        if self._error is not None:
            raise self._error

    def _take(self) -> Sequence[T]:
        items, n_bytes = self._items, self._n_bytes
        if n_bytes <= _BATCH_BYTES:
            self._items, self._n_bytes = [], 0
            return items
        n = max(1, len(items) * _BATCH_BYTES // n_bytes)
        self._items = items[n:]
        self._n_bytes -= n_bytes * n // len(items)
        return items[:n]

    def _overflow(self) -> NoReturn:
        raise FeedFullError(f"{self._n_bytes} bytes are unread")

    async def _rest(self, since: float) -> None:
        """Until an item comes a rest or more after `since`; two rests if none does."""
        with self._lock:
            if self._ended:
                return
            self._rest_until = since + _REST_S
            waiter = self._new_waiter(self._waiters)
        timer = self._loop.call_at(since + 2 * _REST_S, _settle, [waiter], True)
        try:
            await waiter
        finally:
            timer.cancel()
            self._rest_until = 0.0

    def _new_waiter(self, waiters: list[_Waiter]) -> _Waiter:
        waiter: _Waiter = self._loop.create_future()
        waiters.append(waiter)
        return waiter

    def _due(self) -> Sequence[_Waiter]:
        """Those whom a new item wakes. Called with the lock, as is _close."""
        waiters = self._waiters
        if not waiters or time.monotonic() < self._rest_until:
            return ()
        self._waiters = []
        return waiters

    def _close(self, error: Exception | None) -> Sequence[_Waiter]:
        """Those whom the end wakes."""
        self._error = error
        self._ended = True
        waiters = self._waiters + self._end_waiters
        self._waiters, self._end_waiters = [], []
        return waiters

    def _wake(self, waiters: Sequence[_Waiter]) -> None:
        if waiters:
            self._loop.call_soon_threadsafe(_settle, waiters, True)


def _settle(waiters: Sequence[_Waiter], woken: bool) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(woken)
