"""How the process ends when it cannot go on: soon, and with an exit code that says so.

Owns that code and the two ways to end: by itself, or by a signal when no Python code can run. Knows
nothing of the cause.
"""

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

# Tells a supervisor that something broke inside, and a new process may work.
EXIT_CODE = 70
# How long all cores may compute without any Python code running, at worst.
_CORE_SECONDS = 10.0


def end_process() -> NoReturn:
    """Exit at once with EXIT_CODE: a normal exit would wait for a thread that hangs in native
    code.
    """
    logging.shutdown()
    os._exit(EXIT_CODE)


def end_process_in(seconds: float) -> None:
    """Call `end_process` after `seconds`, whatever still runs. From any thread."""

    def end() -> None:
        time.sleep(seconds)
        end_process()

    threading.Thread(target=end, name="end", daemon=True).start()


def guard_interpreter(seconds: float) -> Callable[[], None]:
    """Returns a function that must be called again and again. When it has not been called for
    `seconds` of CPU time, SIGPROF ends the process, with the stacks of all threads on stderr.

    This guards against native code that holds the interpreter's lock for ever: no Python thread
    runs then, and faulthandler's signal handler is the only one that needs none. It counts CPU
    time, so that a process that was stopped and continues does not end.
    """
    limit = max(seconds, _CORE_SECONDS * (os.cpu_count() or 1))
    faulthandler.register(signal.SIGPROF, chain=True)

    def go_on() -> None:
        signal.setitimer(signal.ITIMER_PROF, limit)

    return go_on
