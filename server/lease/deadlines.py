"""How long a request may take: in the queue, to its first token, in all.

Owns the limits, the errors of late requests, and the timers of one request. All times are of the
monotonic clock. Knows neither queue nor engine.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ..errors import DeadlineError, QueueTimeoutError, ServerError


class TimeLimits(NamedTuple):
    """Seconds since the request began to wait; None for no limit."""

    queue: float | None = None
    first_token: float | None = None
    request: float | None = None


NO_LIMITS = TimeLimits()


class Deadline(NamedTuple):
    """A time, in seconds of time.monotonic, and the error from then on."""

    at: float
    error: ServerError


class Deadlines:
    """The deadlines of one request. Made, watched and stopped on the event loop."""

    def __init__(self, limits: TimeLimits, *, since: float | None = None) -> None:
        """`since`: when the request began to wait, in seconds of time.monotonic; None means now."""
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time() if since is None else since
        self.queue = self._in(limits.queue, _queue_error)
        self.first_token = self._in(limits.first_token, _first_token_error)
        self.request = self._in(limits.request, _request_error)
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def first(self) -> Deadline | None:
        """The earliest deadline: after it, the request need not begin."""
        deadlines = [one for one in (self.queue, self.first_token, self.request) if one is not None]
        return min(deadlines, key=lambda deadline: deadline.at, default=None)

    def watch(self, deadline: Deadline | None, on_late: Callable[[ServerError], None]) -> None:
        """Call `on_late` with the deadline's error at its time."""
        if deadline is not None:
            self._timers.append(self._loop.call_at(deadline.at, on_late, deadline.error))

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _in(self, seconds: float | None, error: Callable[[float], ServerError]) -> Deadline | None:
        return None if seconds is None else Deadline(self._since + seconds, error(seconds))


def _queue_error(seconds: float) -> ServerError:
    message = f"the request waited {seconds:g} s for the engine, the limit of this server"
    return QueueTimeoutError(message)


def _first_token_error(seconds: float) -> ServerError:
    message = f"no token came within {seconds:g} s of the request, the limit of this server"
    return DeadlineError(message, code="first_token_timeout")


def _request_error(seconds: float) -> ServerError:
    message = f"the request took {seconds:g} s, the limit of this server"
    return DeadlineError(message, code="request_timeout")
