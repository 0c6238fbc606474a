"""One timer for many waits: when it calls, and when it must not."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from server.stream.idle_timeout import IdleTimeout

SECONDS = 0.05

T = TypeVar("T")


class JumpingClock(selectors.DefaultSelector):
    """Time that passes only while a loop has nothing to do, and then at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = JumpingClock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def run_jumping(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


def calls_of(*waits: float, pause: float = 0.0, seconds: float | None = SECONDS) -> int:
    """How often an IdleTimeout calls in these waits; the pause after each does not count."""
    calls: list[None] = []

    async def run() -> None:
        with IdleTimeout(seconds, lambda: calls.append(None)) as idle_timeout:
            for wait in waits:
                idle_timeout.start()
                await asyncio.sleep(wait)
                idle_timeout.stop()
                await asyncio.sleep(pause)
        await asyncio.sleep(2 * SECONDS)

    run_jumping(run())
    return len(calls)


def test_a_long_wait_is_called_once() -> None:
    assert calls_of(4 * SECONDS) == 1


def test_each_long_wait_is_called() -> None:
    assert calls_of(3 * SECONDS, 3 * SECONDS) == 2


def test_many_short_waits_do_not_make_a_long_one() -> None:
    assert calls_of(*[SECONDS / 50] * 150) == 0


def test_time_between_waits_does_not_count() -> None:
    assert calls_of(0.0, pause=3 * SECONDS) == 0


def test_nothing_is_called_after_the_end() -> None:
    async def run() -> list[None]:
        calls: list[None] = []
        with IdleTimeout(SECONDS, lambda: calls.append(None)) as idle_timeout:
            idle_timeout.start()
        await asyncio.sleep(2 * SECONDS)
        return calls

    assert run_jumping(run()) == []


def test_without_a_limit_a_wait_may_last() -> None:
    assert calls_of(2 * SECONDS, seconds=None) == 0
