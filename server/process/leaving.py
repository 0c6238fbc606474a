"""What a signal does, and how the process ends at once.

Imports no part of the server, so that both work while the rest is still being imported.
"""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def signals_handled(handle: "signal._HANDLER") -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with `handle`; not SIGHUP if it is ignored, as by nohup.
    On the main thread only.
    """
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever its threads do, without Python's own shutdown."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
