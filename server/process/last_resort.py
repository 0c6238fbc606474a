"""How the process ends when it cannot go on: soon, and with an exit code that says so.

Owns that code and the two ways: by itself, or by a signal when no Python can run. Knows nothing of
what was lost.
"""

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import NoReturn

# For whoever supervises the process: something broke inside, a new process may do better.
EXIT_CODE = 70
# For so long all cores may compute and no Python run, in the worst of times.
_CORE_SECONDS = 10.0


def end_process() -> NoReturn:
    """At once, with EXIT_CODE: a thread that hangs in native code would outlive the interpreter."""
    logging.shutdown()
    os._exit(EXIT_CODE)


def end_process_in(seconds: float) -> None:
    """Whatever then still runs. From any thread."""

    def end() -> None:
        time.sleep(seconds)
        end_process()

    threading.Thread(target=end, name="end", daemon=True).start()


def guard_interpreter(seconds: float) -> Callable[[], None]:
    """What must be called again and again: without that the process ends by SIGPROF, the stacks of
    all threads on stderr, when it has computed for `seconds`.

    This is for native code that keeps the interpreter's lock for ever: no thread of Python runs
    then, and the handler of this signal is the only one that needs none. It counts time of the
    processor, so that a process which was stopped, and goes on, does not end for that.
    """
    limit = max(seconds, _CORE_SECONDS * (os.cpu_count() or 1))
    faulthandler.register(signal.SIGPROF, chain=True)

    def go_on() -> None:
        signal.setitimer(signal.ITIMER_PROF, limit)

    return go_on
