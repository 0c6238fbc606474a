"""The way from the engine thread to a reader on the event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from server.stream.feed import Feed, FeedFullError


async def read(feed: Feed[int], seen: list[int] | None = None) -> list[int]:
    seen = [] if seen is None else seen
    async for batch in feed.batches():
        seen += batch
    return seen


async def test_a_reader_gets_all_items_once_and_in_order() -> None:
    feed: Feed[int] = Feed()

    def say() -> None:
        for i in range(0, 3000, 3):
            feed.append(i)
            feed.extend([i + 1, i + 2])
        feed.end([3000])

    reader = asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    thread = threading.Thread(target=say)
    thread.start()
    await feed.begun()
    assert await reader == [*range(3001)]
    thread.join()
    assert await read(feed) == [], "nothing is kept that was taken"


async def test_whole_waits_for_the_end() -> None:
    feed: Feed[int] = Feed()
    whole = asyncio.create_task(feed.whole())
    feed.extend([1, 2])
    await asyncio.sleep(0.01)
    assert not whole.done()
    feed.end([3])
    assert await whole == [1, 2, 3]


async def test_a_reader_that_is_behind_gets_a_little_at_a_time() -> None:
    feed: Feed[int] = Feed(size_of=lambda _: 1024)
    feed.extend([*range(1000)])
    feed.end()
    batches = [batch async for batch in feed.batches()]
    assert [item for batch in batches for item in batch] == [*range(1000)]
    assert max(map(len, batches)) == 64
    assert feed.unread_bytes == 0


async def test_more_than_may_be_kept_is_refused_and_the_rest_can_be_read() -> None:
    feed: Feed[int] = Feed(size_of=lambda _: 10, max_bytes=25)
    feed.append(1)
    feed.append(2)
    with pytest.raises(FeedFullError):
        feed.append(3)
    feed.end(error=RuntimeError("planted"))
    seen: list[int] = []
    with pytest.raises(RuntimeError, match="planted"):
        await read(feed, seen)
    assert seen == [1, 2, 3]


async def test_giving_up_keeps_nothing() -> None:
    feed: Feed[int] = Feed(size_of=lambda _: 10)
    feed.extend([1, 2, 3])
    feed.give_up(RuntimeError("planted"))
    feed.append(4)
    feed.end([5])
    assert feed.unread_bytes == 0
    with pytest.raises(RuntimeError, match="planted"):
        await feed.begun()
    with pytest.raises(RuntimeError, match="planted"):
        await read(feed)


async def test_what_came_together_is_read_together() -> None:
    feed: Feed[int] = Feed()
    feed.append(1)
    feed.extend([2, 3])
    feed.end([4])
    assert [batch async for batch in feed.batches()] == [[1, 2, 3, 4]]


class Calls:
    """Counts how often other threads wake the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        loop = asyncio.get_running_loop()
        self._call = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", self._counted)

    def _counted(self, *args: Any) -> asyncio.Handle:
        self.n += 1
        return self._call(*args)


async def test_who_waits_for_the_end_is_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    feed: Feed[int] = Feed()
    calls = Calls(monkeypatch)
    whole = asyncio.create_task(feed.whole())
    for i in range(10):
        await asyncio.sleep(0)
        feed.append(i)
        feed.extend([])
    assert calls.n == 0
    feed.end()
    assert await whole == [*range(10)]
    assert calls.n == 1


async def resting(feed: Feed[int]) -> asyncio.Future[Sequence[int]]:
    """The next batch of a reader that rests: it got two items, one just after the other."""
    batches = feed.batches()
    for item in (1, 2):
        feed.append(item)
        assert await asyncio.wait_for(anext(batches), 20) == [item]
    return await waiting(batches)


async def waiting(batches: AsyncIterator[Sequence[int]]) -> asyncio.Future[Sequence[int]]:
    """The next batch, of a reader that rests or waits for it."""
    reader = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    return reader


async def test_items_during_a_rest_wake_nobody_and_the_end_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.stream.feed._REST_S", 3600)
    feed: Feed[int] = Feed()
    batch = await resting(feed)
    calls = Calls(monkeypatch)
    feed.append(3)
    feed.append(4)
    assert calls.n == 0
    feed.end([5])
    assert calls.n == 1
    async with asyncio.timeout(20):
        assert await batch == [3, 4, 5]


async def test_several_items_at_once_end_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.stream.feed._REST_S", 3600)
    feed: Feed[int] = Feed()
    batch = await resting(feed)
    feed.append(3)
    feed.extend([4, 5])
    async with asyncio.timeout(20):
        assert await batch == [3, 4, 5]


async def test_a_reader_that_was_behind_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.stream.feed._REST_S", 3600)
    feed: Feed[int] = Feed(size_of=lambda _: 1024)
    feed.extend([*range(150)])
    batches = feed.batches()
    async with asyncio.timeout(20):
        assert [len(await anext(batches)) for _ in range(3)] == [64, 64, 22]
        batch = await waiting(batches)
        feed.append(150)
        assert await batch == [150]


async def test_the_first_item_after_a_rest_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.stream.feed._REST_S", 3600)
    feed: Feed[int] = Feed()
    batch = await resting(feed)
    feed.append(3)
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + 3600)
    feed.append(4)
    monkeypatch.undo()
    async with asyncio.timeout(20):
        assert await batch == [3, 4]


async def test_an_item_that_none_follows_is_not_left() -> None:
    feed: Feed[int] = Feed()
    batch = await resting(feed)
    feed.append(3)
    async with asyncio.timeout(20):
        assert await batch == [3]


async def test_a_reader_of_slow_items_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.stream.feed._REST_S", 3600)
    feed: Feed[int] = Feed()
    batches = feed.batches()
    feed.append(1)
    assert await anext(batches) == [1]
    loop = asyncio.get_running_loop()
    now = loop.time()
    feed.append(2)
    assert await asyncio.wait_for(anext(batches), 20) == [2]
    monkeypatch.setattr(loop, "time", lambda: now + 3 * 3600)
    batch = await waiting(batches)
    calls = Calls(monkeypatch)
    feed.append(3)
    assert calls.n == 1
    assert await batch == [3]


class Turnstile:
    """A lock that lets another thread run through first, from its start to its end."""

    def __init__(self, number: int, other: Callable[[], None]) -> None:
        """`number`: before which acquisition by the event loop's thread the other one runs."""
        self._lock = threading.Lock()
        self._loop_thread = threading.get_ident()
        self._number = number
        self._other = other

    def __enter__(self) -> None:
        if threading.get_ident() == self._loop_thread:
            self._number -= 1
            if not self._number:
                thread = threading.Thread(target=self._other)
                thread.start()
                thread.join()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("wait", [Feed[int].begun, Feed[int].whole, read], ids=lambda f: f.__name__)
async def test_what_comes_just_before_a_reader_waits_wakes_it(
    wait: Callable[[Feed[int]], Awaitable[object]], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = threading.Event()

    def say() -> None:
        feed.end([1])
        said.set()

    turnstile = Turnstile(number, say)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Lock", lambda: turnstile)
        feed: Feed[int] = Feed()
    reader = asyncio.ensure_future(wait(feed))
    await asyncio.sleep(0.01)
    if not said.is_set():
        say()  # the reader takes the lock fewer times than that
    async with asyncio.timeout(20):
        assert await reader in (None, [1])


async def test_an_error_comes_after_the_last_item() -> None:
    feed: Feed[int] = Feed()
    feed.extend([1])
    feed.end([2], error=RuntimeError("planted"))
    seen: list[int] = []
    with pytest.raises(RuntimeError, match="planted"):
        await read(feed, seen)
    assert seen == [1, 2]


async def test_silence_is_an_empty_batch_and_loses_nothing() -> None:
    feed: Feed[int] = Feed()
    batches = feed.batches(idle=0.01)
    assert await anext(batches) == ()
    assert await anext(batches) == ()
    feed.end([1])
    assert await anext(batches) == [1]
    with pytest.raises(StopAsyncIteration):
        await anext(batches)
