"""The numbered events of one answer: nobody waits for what has come already."""

import asyncio

from server.kept.log import EventLog

EVENT = b"data: {}\n\n"


def test_an_event_that_came_before_the_wait_ends_it() -> None:
    async def waited() -> bool:
        log = EventLog()
        log.append(EVENT)
        early = asyncio.create_task(log.changed(1))
        log.append(EVENT)  # before the task has begun to wait
        await asyncio.wait_for(early, 5)
        late = asyncio.create_task(log.changed(2))
        await asyncio.sleep(0.01)
        still = not late.done()
        log.append(EVENT)
        await asyncio.wait_for(late, 5)
        return still

    assert asyncio.run(waited())


def test_the_end_ends_every_wait() -> None:
    async def waited() -> None:
        log = EventLog()
        waits = [asyncio.create_task(log.changed(n)) for n in (0, 7)]
        await asyncio.sleep(0)
        log.end()
        await asyncio.wait_for(asyncio.gather(*waits), 5)
        await asyncio.wait_for(log.changed(99), 5)

    asyncio.run(waited())
