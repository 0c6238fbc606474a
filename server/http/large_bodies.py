"""Work in proportion to a large body: beside the event loop, and little of it at once.

Python runs one thread at a time: beside many busy ones the event loop would wait long for its turn,
and with it all other requests. So there is one thread for the largest bodies and one for other
large ones, and neither kind waits for the other. What such a body took of the memory goes back to
the system when it is done with. Knows no route and no field.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from ..errors import contained

# From here on a body is read beside the event loop: a few milliseconds' work.
LARGE_BODY = 32 * 1024
HUGE_BODY = 512 * 1024

# Meanwhile Python changes threads so often, instead of every 5 ms: a token and an event each need
# its lock several times, and each time may have to wait for so long, for each thread at work.
_SWITCH_S = 0.0005

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK = 1024 * 1024

# Bodies come together: the memory of all of them is given back at once.
_TRIM_AFTER_S = 1.0

T = TypeVar("T")


class LargeBodies:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)
        self._huge = asyncio.Semaphore(1)
        self._n_at_work = 0
        self._usual_s = sys.getswitchinterval()
        self._collects = gc.isenabled()
        self._trimming: asyncio.Task[None] | None = None
        self.n_trimmed = 0
        """How often memory was given back."""
        _keep_no_large_blocks()

    async def run(self, call: Callable[[], T], size: int, *, inline_below: int = LARGE_BODY) -> T:
        """The result of `call`: computed at once when there is little to do, else as by `work`.

        `size`: of what is read, in the unit of `inline_below`: bytes or characters.
        """
        return contained(call) if size < inline_below else await self.work(call, size)

    async def work(self, call: Callable[[], T], n_bytes: int) -> T:
        """The result of `call`, which so many bytes of a request cause, when it has its turn."""
        if n_bytes < LARGE_BODY:
            return await run_in_threadpool(contained, call)
        async with self._huge if n_bytes >= HUGE_BODY else self._large:
            with self._yielding():
                return await run_in_threadpool(contained, call)

    def done_with(self, n_bytes: int) -> None:
        """A body of that size is read no more; what it took is given back a little later."""
        if n_bytes >= LARGE_BODY and self._trimming is None:
            self._trimming = asyncio.create_task(self._trim())

    @contextmanager
    def _yielding(self) -> Iterator[None]:
        if self._n_at_work == 0:
            self._usual_s = sys.getswitchinterval()
            self._collects = gc.isenabled()
            sys.setswitchinterval(_SWITCH_S)
            gc.disable()  # it would look at all that is being read, again and again, with the lock
        self._n_at_work += 1
        try:
            yield
        finally:
            self._n_at_work -= 1
            if self._n_at_work == 0:
                sys.setswitchinterval(self._usual_s)
                if self._collects:
                    gc.enable()

    async def _trim(self) -> None:
        await asyncio.sleep(_TRIM_AFTER_S)
        self._trimming = None
        self.n_trimmed += 1
        # Beside the event loop: it takes milliseconds, most of them without Python's lock.
        await run_in_threadpool(_trim_memory)


def _keep_no_large_blocks() -> None:
    """Have large blocks taken from the system and given back one by one.

    Left alone, glibc learns from the first of them to keep blocks of up to 32 MiB for later, at the
    top of each thread's memory, which no trimming gives back.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE_BLOCK)


def _trim_memory() -> None:
    """Give free memory back to the system, where the C library can: glibc keeps it otherwise."""
    gc.collect()  # an error that refused a body is in cycles with the frames that it went through
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
