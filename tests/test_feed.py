"""The way from the engine thread to readers on the event loop."""

import asyncio
import threading

import pytest

from server.feed import Feed


async def read(feed: Feed[int], seen: list[int] | None = None) -> list[int]:
    seen = [] if seen is None else seen
    async for batch in feed.batches():
        seen += batch
    return seen


async def test_every_reader_gets_all_items_from_the_first_one_on() -> None:
    feed: Feed[int] = Feed()

    def say() -> None:
        for i in range(0, 3000, 3):
            feed.append(i)
            feed.extend([i + 1, i + 2])
        feed.end([3000])

    early = [asyncio.create_task(read(feed)) for _ in range(3)]
    await asyncio.sleep(0)
    thread = threading.Thread(target=say)
    thread.start()
    assert [await reader for reader in early] == [[*range(3001)]] * 3
    thread.join()
    assert await read(feed) == [*range(3001)], "also who comes late"


async def test_what_came_together_is_read_together() -> None:
    feed: Feed[int] = Feed()
    feed.append(1)
    feed.extend([2, 3])
    feed.end([4])
    assert [batch async for batch in feed.batches()] == [[1, 2, 3, 4]]


async def test_an_error_comes_behind_the_last_item() -> None:
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
