"""Work in proportion to a large body: beside the event loop, and little of it at once.

Python runs one thread at a time: beside many busy ones the event loop would wait long for its turn,
and with it all other requests. So there is one thread for the largest bodies and one for other
large ones, and neither kind waits for the other. What such a body took of the memory goes back to
the system when it is done with. Knows no route and no field.
"""

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from .errors import contained

# From here on a body is read beside the event loop: a few milliseconds' work.
LARGE_BODY = 32 * 1024
HUGE_BODY = 512 * 1024

# Bodies come together: the memory of all of them is given back at once.
_TRIM_AFTER_S = 1.0

T = TypeVar("T")


class LargeBodies:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)
        self._huge = asyncio.Semaphore(1)
        self._trimming: asyncio.Task[None] | None = None
        self.n_trimmed = 0
        """How often memory was given back."""

    async def work(self, call: Callable[[], T], n_bytes: int) -> T:
        """The result of `call`, which so many bytes of a request cause, when it has its turn."""
        if n_bytes < LARGE_BODY:
            return await run_in_threadpool(contained, call)
        async with self._huge if n_bytes >= HUGE_BODY else self._large:
            return await run_in_threadpool(contained, call)

    def done_with(self, n_bytes: int) -> None:
        """A body of that size is read no more; what it took is given back a little later."""
        if n_bytes >= LARGE_BODY and self._trimming is None:
            self._trimming = asyncio.create_task(self._trim())

    async def _trim(self) -> None:
        await asyncio.sleep(_TRIM_AFTER_S)
        self._trimming = None
        self.n_trimmed += 1
        # Beside the event loop: it takes milliseconds, without Python's lock.
        await run_in_threadpool(_trim_memory)


def _trim_memory() -> None:
    """Give free memory back to the system, where the C library can: glibc keeps it otherwise."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
