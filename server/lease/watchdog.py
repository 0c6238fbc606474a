"""Watchdog: detects a hung engine, a hung event loop, or repeated NaN logits.

Owns what counts as lost, and what is logged then. Knows the lease; knows no request and no route.
Nothing here runs per token.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine import NumericsError

from ..errors import UnavailableError
from .lease import EngineLease

_logger = logging.getLogger(__name__)

_TICK_S = 1.0
# A silence that ended by itself allows later ones this many times as long.
_PATIENCE = 20
# Half-life of what was learnt from a silence, as a multiple of the limit.
_MEMORY = 10
# Completions in a row that may fail with NaN or infinite logits.
_MOST_BROKEN = 3
_LOST = "the engine has failed, and the server is shutting down"


class Silence:
    """How long something has given no sign of life, and whether that is too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sign = 0
        self._lasted = self._longest = 0.0

    def is_too_long(self, sign: int, passed: float, *, expected: bool = True) -> bool:
        """Call after `passed` more seconds. A changed `sign` is a sign of life."""
        if expected and sign == self._sign:
            self._lasted += passed
        else:
            forgotten = 0.5 ** (passed / (_MEMORY * self._seconds))
            self._longest = max(self._longest * forgotten, self._lasted)
            self._sign, self._lasted = sign, 0.0
        return self._lasted > max(self._seconds, _PATIENCE * self._longest)


class Watchdog:
    """Watches a lease and its event loop from a separate thread."""

    def __init__(
        self,
        lease: EngineLease,
        *,
        hang_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hang_seconds`: how long a busy engine, or the event loop, may give no sign of life."""
        self._lease = lease
        self._clock = clock
        self._tick_s = min(_TICK_S, hang_seconds / 4)
        self._engine = Silence(hang_seconds)
        self._event_loop = Silence(hang_seconds)
        self._n_answers = 0  # by the event loop
        self._n_broken = 0
        self._ended = threading.Event()
        self.on_tick: Callable[[], None] = lambda: None
        """Called at the beginning, and then by the thread as long as Python code can run."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs. On the event loop."""
        loop = asyncio.get_running_loop()
        self._ended.clear()
        self.on_tick()
        threading.Thread(target=self._watch, args=(loop,), name="watchdog", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()

    def told(self, error: Exception | None) -> None:
        """A completion ended, with `error` if it failed. On the engine thread, before the next."""
        if isinstance(error, NumericsError):
            self._n_broken += 1
        elif error is None:
            self._n_broken = 0
        if self._n_broken >= _MOST_BROKEN:
            _logger.critical("%d completions in a row had NaN or infinite logits", self._n_broken)
            self._lease.fail(UnavailableError(_LOST))

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        before = self._clock()
        while not self._ended.wait(self._tick_s):
            now = self._clock()
            # When the whole process stood still (Ctrl-Z, a paused container, a machine without a
            # free core), only two ticks of that time count.
            passed, before = min(now - before, 2 * self._tick_s), now
            self.on_tick()
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the event loop is closed
                return
            if self._engine.is_too_long(
                self._lease.heartbeat, passed, expected=self._lease.is_computing
            ):
                self._lose("the engine hangs")
                return
            if self._event_loop.is_too_long(self._n_answers, passed):
                self._lose("the event loop hangs")
                return

    def _answer(self) -> None:
        """On the event loop."""
        self._n_answers += 1

    def _lose(self, reason: str) -> None:
        _logger.critical("%s; stacks of all threads:\n%s", reason, _stacks())
        self._lease.fail(UnavailableError(_LOST))


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts += [f"thread {names.get(ident, ident)}:\n", *traceback.format_stack(frame)]
    return "".join(parts).rstrip()
