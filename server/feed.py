"""What one thread says and readers on the event loop follow, each from the beginning.

Owns the way from the engine thread to the event loop; knows nothing of what is said.

The thread never waits for a reader. Everything is kept until the feed is dropped, so a slow reader
costs memory, and never the engine. The event loop is woken only when a reader waits, once for all
that came since. Whoever reads as it comes rests for a millisecond after each batch: tokens that are
faster come several at once. To wake the event loop for each of them would take the engine, which
shares its cores, a third of the speed that such small models have.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from .watchdog import Watchdog

T = TypeVar("T")

# True: something has come, or the end. False: the time is over.
_Waiter = asyncio.Future[bool]

_REST_S = 0.001


class Feed(Generic[T]):
    """Items in the order in which they came. Made on the event loop that its readers run on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # guards the fields below
        self._items: list[T] = []
        self._waiters: list[_Waiter] = []
        self._ended = False
        self._error: Exception | None = None

    def append(self, item: T) -> None:
        """One more. From any thread."""
        with self._lock:
            self._items.append(item)
            waiters = self._waiters
            if waiters:
                self._waiters = []
        if waiters:
            self._wake(waiters)

    def extend(self, items: Sequence[T]) -> None:
        """More of them. From any thread."""
        with self._lock:
            self._items.extend(items)
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    def end(self, items: Sequence[T] = (), *, error: Exception | None = None) -> None:
        """The last of them, and what ended the feed if that was an error. From any thread."""
        with self._lock:
            self._items.extend(items)
            self._error = error
            self._ended = True
            waiters, self._waiters = self._waiters, []
        self._wake(waiters)

    async def batches(self, *, idle: float | None = None) -> AsyncIterator[Sequence[T]]:
        """All items from the first one on, as many at once as have come since the last time.

        After `idle` seconds without any, an empty sequence. Raises, after the last item, what ended
        the feed, if that was an error.
        """
        cursor = 0
        waiter: _Waiter | None = None
        with Watchdog(idle, lambda: _settle([waiter] if waiter else [], False)) as watchdog:
            while True:
                with self._lock:
                    fresh = self._items[cursor:]
                    ended = self._ended
                    waiter = None if fresh or ended else self._new_waiter()
                if waiter is not None:
                    watchdog.start()
                    woken = await waiter
                    watchdog.stop()
                    if not woken:
                        yield ()
                    continue
                cursor += len(fresh)
                if fresh:
                    yield fresh
                if ended:
                    break
                await asyncio.sleep(_REST_S)
        if self._error is not None:
            raise self._error

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
