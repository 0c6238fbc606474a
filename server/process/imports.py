"""Imports in a thread, while the caller waits for a disk or computes in native code."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

# Python's switch interval meanwhile, instead of 5 ms. Whoever loads a model calls native code some
# hundred times, and after each call waits this long until the importing thread lets go of the
# interpreter: with 5 ms that takes as long as the imports, and nothing is gained.
_SWITCH_S = 0.0002


@contextmanager
def imported_meanwhile(imports: Callable[[], object]) -> Iterator[None]:
    """Call `imports` in a thread while the block runs, and wait for it at the end.

    What fails there is left to the statement that needs the import, which fails in the same way.
    """

    def run() -> None:
        with suppress(Exception):
            imports()

    thread = Thread(target=run, name="imports")
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        thread.start()
        try:
            yield
        finally:
            thread.join()
    finally:
        sys.setswitchinterval(usual_s)
