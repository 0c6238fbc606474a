"""The log of events: every reader gets the same bytes, from wherever it begins."""

import asyncio

import pytest

from server.kept.log import EventLog


def frame(n: int) -> bytes:
    return b"data: %d\n\n" % n


def wanted(after: int, n_events: int) -> bytes:
    return b"".join(b"id: %d\n%b" % (n, frame(n)) for n in range(after + 1, n_events + 1))


@pytest.mark.parametrize("n_events", [0, 1, 63, 64, 65, 128, 700])
def test_readers_get_the_rest_of_an_ended_log(n_events: int) -> None:
    async def read() -> None:
        log = EventLog()
        for n in range(1, n_events + 1):
            log.append(frame(n))
        log.end()
        for after in {0, 1, 63, 64, 65, n_events // 2, n_events} & set(range(n_events + 1)):
            pieces = [piece async for piece in log.read_numbered(after)]
            assert b"".join(pieces) == wanted(after, n_events), after
        first = [piece async for piece in log.read()]
        assert b"".join(first) == b"".join(map(frame, range(1, n_events + 1)))

    asyncio.run(read())


def test_readers_who_come_while_it_is_written_get_all_of_it() -> None:
    async def follow(log: EventLog, after: int) -> bytes:
        return b"".join([piece async for piece in log.read_numbered(after)])

    async def run() -> None:
        log = EventLog()
        log.append(frame(1))
        readers = [asyncio.create_task(follow(log, after)) for after in (0, 1, 0)]
        for n in range(2, 500):
            log.append(frame(n))
            if n % 50 == 0:
                await asyncio.sleep(0.001)
                readers.append(asyncio.create_task(follow(log, n - 3)))
        log.end()
        starts = [0, 1, 0, *range(47, 450, 50)]
        for after, reader in zip(starts, readers, strict=True):
            assert await reader == wanted(after, 499), after

    asyncio.run(run())


def test_a_reader_who_leaves_while_all_rest_takes_nobody_along() -> None:
    async def follow(log: EventLog, got: list[bytes]) -> None:
        async for piece in log.read_numbered(0):
            got.append(piece)

    async def run() -> None:
        log = EventLog()
        log.append(frame(1))
        pieces: list[list[bytes]] = [[] for _ in range(4)]
        readers = [asyncio.create_task(follow(log, got)) for got in pieces]
        while not all(pieces):
            await asyncio.sleep(0)
        readers[1].cancel()
        log.append(frame(2))
        log.end()
        ends = await asyncio.gather(*readers, return_exceptions=True)
        assert isinstance(ends[1], asyncio.CancelledError)
        for got in (pieces[0], pieces[2], pieces[3]):
            assert b"".join(got) == wanted(0, 2)

    asyncio.run(run())
