"""How many threads the native ops run on.

Owns the default and the range of the option. Starts none: csrc/pool.h does.
"""

import logging
import os
from pathlib import Path

from .errors import ModelLoadError

logger = logging.getLogger(__name__)

MAX_THREADS = 256
# A step of a model of so few parameters is over before a second thread has paid for its barriers,
# and on two cores that thread competes with the server's own (bench/RESULTS.md).
_ONE_UP_TO_PARAMS = 30_000_000
# Above so many processors, one is left to the rest of the server.
_ALL_UP_TO = 4
_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def threads_for(n_params: int) -> int | None:
    """The default for a model of that size; None: what `thread_count` says."""
    return 1 if n_params <= _ONE_UP_TO_PARAMS else None


def thread_count(wanted: int | None = None) -> int:
    """`wanted`; without it, what this process may use of the machine: all of few processors, one
    less than all of many.

    Raises ModelLoadError when `wanted` is out of range.
    """
    allowed = os.sched_getaffinity(0)
    if wanted is None:
        usable = min(_cores(allowed), _quota())
        return usable if usable <= _ALL_UP_TO else usable - 1
    if not 1 <= wanted <= MAX_THREADS:
        raise ModelLoadError(f"n_threads: must be 1 to {MAX_THREADS}, not {wanted}")
    if wanted > len(allowed):
        logger.warning("%d threads share %d processors: slower than fewer", wanted, len(allowed))
    return wanted


def _cores(processors: set[int]) -> int:
    """Of many processors, those that share a core count once: its threads would only share what it
    computes and reads. Of few, each counts.
    """
    if len(processors) <= _ALL_UP_TO:
        return len(processors)
    try:
        return len({Path(_TOPOLOGY.format(each)).read_text("ascii") for each in processors})
    except OSError:
        return len(processors)


def _quota() -> int:
    """How many processors a control group's (a container's) time limit amounts to, rounded down:
    a thread that is stopped in the middle holds up all others.
    """
    try:
        words = (_CGROUP / "cpu.max").read_text("ascii").split()
    except OSError:
        words = _quota_of_version_1()
    if len(words) != 2 or words[0].strip() in ("max", "-1"):
        return MAX_THREADS
    return max(1, int(words[0]) // int(words[1]))


def _quota_of_version_1() -> list[str]:
    try:
        return [(_CGROUP / "cpu" / f"cpu.cfs_{it}_us").read_text() for it in ("quota", "period")]
    except OSError:
        return []
