"""Python's garbage collector, and what it costs a load. Knows nothing of what is loaded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection. The lists of a vocabulary make it begin again and again, to scan
    them and all that is imported, which takes as long as reading them.

    Others may do the same at the same time: nobody disables it who does not enable it again.
    """
    collects = gc.isenabled()
    if collects:
        gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
