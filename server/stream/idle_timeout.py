"""A limit on each of many short waits, for the price of one timer.

A stream waits once per token, and a timer for each wait would be made and cancelled as often. Here
one timer serves them all: when it fires, it checks how long the current wait has lasted.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self


class IdleTimeout:
    """Calls `on_expiry` when a wait, from `start` to `stop`, lasts `seconds`; None means never.

    A context manager, entered on the event loop. After its end nothing is called.
    """

    def __init__(self, seconds: float | None, on_expiry: Callable[[], None]) -> None:
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        if self._seconds is not None:
            self._timer = self._loop.call_later(self._seconds, self._look, self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        self._since = self._loop.time()

    def stop(self) -> None:
        self._since = None

    def _look(self, seconds: float) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        expired = now >= since + seconds
        if expired:
            self._since = None
            since = now
        self._timer = self._loop.call_at(since + seconds, self._look, seconds)
        if expired:
            self._on_expiry()
