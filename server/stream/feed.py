"""What one thread says and a reader on the event loop takes.

Owns the way from the engine thread to the event loop; knows nothing of what is said.

The thread never waits for the reader. What the reader has not taken is kept, so a slow one costs
memory, up to a bound, and never the engine. The event loop is woken only when the reader waits,
once for all that came since. A reader that keeps up rests for a millisecond after each batch:
tokens that are faster come several at once. To wake the event loop for each of them would take the
engine, which shares its cores, a third of the speed that such small models have.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, NoReturn, TypeVar

from .idle_timeout import IdleTimeout

T = TypeVar("T")

# True: something has come, or the end. False: the time is over.
_Waiter = asyncio.Future[bool]

_REST_S = 0.001
# A reader that is behind is given so much at once: what it makes of it holds up the event loop.
_BATCH_BYTES = 8 * 1024


class FeedFullError(Exception):
    """More is unread than may be kept. What was said until then is."""


class Feed(Generic[T]):
    """Items in the order in which they came, each taken once. Made on its reader's event loop."""

    def __init__(
        self, *, size_of: Callable[[T], int] = lambda _: 0, max_bytes: float = math.inf
    ) -> None:
        """`size_of`: about how much memory an item takes; `max_bytes`: and all of the untaken."""
        self._size_of = size_of
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # guards the fields below
        self._items: list[T] = []
        self._n_bytes = 0
        self._waiters: list[_Waiter] = []
        self._ended = False
        self._error: Exception | None = None

    @property
    def unread_bytes(self) -> int:
        return self._n_bytes

    def append(self, item: T) -> None:
        """One more. From any thread. Raises FeedFullError."""
        n_bytes = self._size_of(item)
        with self._lock:
            if self._ended:
                return
            self._items.append(item)
            self._n_bytes += n_bytes
            waiters = self._waiters
            if waiters:
                self._waiters = []
        if waiters:
            self._wake(waiters)
        if self._n_bytes > self._max_bytes:
            self._overflow()

    def extend(self, items: Sequence[T]) -> None:
        """More of them. From any thread. Raises FeedFullError."""
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
        """The last of them, and what ended the feed if that was an error. From any thread.

        What comes after the end is lost.
        """
        with self._lock:
            if self._ended:
                return
            self._items.extend(items)
            self._error = error
            self._ended = True
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    def give_up(self, error: Exception) -> None:
        """Forget what is unread: all that a reader gets from now on is `error`."""
        with self._lock:
            self._items, self._n_bytes = [], 0
            self._error = error
            self._ended = True
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    async def begun(self) -> None:
        """Wait for the first item, and take none. Raises what ended the feed before it."""
        await self._until(lambda: self._ended or bool(self._items))
        if not self._items and self._error is not None:
            raise self._error

    async def whole(self) -> list[T]:
        """Wait for the end, and take all items. Raises what ended the feed."""
        await self._until(lambda: self._ended)
        if self._error is not None:
            raise self._error
        items, self._items, self._n_bytes = self._items, [], 0
        return items

    async def batches(self, *, idle: float | None = None) -> AsyncIterator[Sequence[T]]:
        """Take all items, as many at once as have come since the last time, or as is good at once.

        After `idle` seconds without any, an empty sequence. Raises, after the last item, what ended
        the feed, if that was an error.
        """
        waiter: _Waiter | None = None
        with IdleTimeout(idle, lambda: _settle([waiter] if waiter else [], False)) as idle_timeout:
            while True:
                with self._lock:
                    fresh = self._take()
                    is_behind = bool(self._items)
                    ended = self._ended and not is_behind
                    waiter = None if fresh or ended else self._new_waiter()
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
                await asyncio.sleep(0 if is_behind else _REST_S)
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
        raise FeedFullError(f"{self._n_bytes} bytes wait to be read")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while True:
            # In one critical section: what comes in between would wake nobody.
            with self._lock:
                if holds():
                    return
                waiter = self._new_waiter()
            await waiter

    def _new_waiter(self) -> _Waiter:
        waiter: _Waiter = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def _wake(self, waiters: Sequence[_Waiter]) -> None:
        if waiters:
            self._loop.call_soon_threadsafe(_settle, waiters, True)


def _settle(waiters: Sequence[_Waiter], woken: bool) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(woken)
