"""Work that grows with a large body: in threads, and only a few at once.

Python runs one thread at a time: with many busy threads the event loop would wait long for its
turn, and all other requests with it. So one thread serves the largest bodies and another the other
large ones, and neither kind waits for the other. The memory that such a body took is returned to
the system afterwards. Knows no route and no field.
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

# A body of this size takes a few milliseconds: it is parsed in a thread.
LARGE_BODY = 32 * 1024
HUGE_BODY = 512 * 1024

# Python's switch interval meanwhile, instead of 5 ms: a token and an event each need the
# interpreter's lock several times, and each time may wait this long for every busy thread.
_SWITCH_S = 0.0005

# Constants of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGE_BLOCK = 1024 * 1024

# Large bodies come in groups: the memory of all of them is returned at once.
_TRIM_AFTER_S = 1.0

T = TypeVar("T")


class LargeBodies:
    """Runs the work for large bodies in turn, and returns their memory afterwards."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)
        self._huge = asyncio.Semaphore(1)
        self._n_at_work = 0
        self._usual_s = sys.getswitchinterval()
        self._collects = gc.isenabled()
        self._trimming: asyncio.Task[None] | None = None
        self.n_trimmed = 0
        """How often memory was returned."""
        _keep_no_large_blocks()

    async def run(self, call: Callable[[], T], size: int, *, inline_below: int = LARGE_BODY) -> T:
        """The result of `call`: computed at once when there is little to do, else as by `work`.

        `size`: of what is read, in the unit of `inline_below`: bytes or characters.
        """
        return contained(call) if size < inline_below else await self.work(call, size)

    async def work(self, call: Callable[[], T], n_bytes: int) -> T:
        """Run `call` when its turn comes. `n_bytes`: the size of the input it works on."""
        if n_bytes < LARGE_BODY:
            return await run_in_threadpool(contained, call)
        async with self._huge if n_bytes >= HUGE_BODY else self._large:
            with self._yielding():
                return await run_in_threadpool(contained, call)

    def done_with(self, n_bytes: int) -> None:
        """A body of that size is no longer needed: its memory is returned a little later."""
        if n_bytes >= LARGE_BODY and self._trimming is None:
            self._trimming = asyncio.create_task(self._trim())

    @contextmanager
    def _yielding(self) -> Iterator[None]:
        if self._n_at_work == 0:
            self._usual_s = sys.getswitchinterval()
            self._collects = gc.isenabled()
            sys.setswitchinterval(_SWITCH_S)
            if self._collects:
                gc.disable()  # it would scan the growing value again and again, with the lock held
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
        # In a thread: it takes milliseconds, most of them without Python's lock.
        await run_in_threadpool(_trim_memory)


def _keep_no_large_blocks() -> None:
    """Have large blocks taken from the system and returned to it one by one.

    By default glibc learns from the first of them to keep blocks of up to 32 MiB at the top of each
    thread's memory, and no trimming returns those.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE_BLOCK)


def _trim_memory() -> None:
    """Return free memory to the system, if the C library can: glibc would keep it."""
    gc.collect()  # an error that refused a body forms cycles with the frames it passed through
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
