"""How many threads the native ops run on, and on which processors.

Owns the default and the range of the option. csrc/pool.h starts the threads.
"""

import logging
import os
from pathlib import Path

from ..errors import ModelLoadError

logger = logging.getLogger(__name__)

MAX_THREADS = 256
# With more processors than this, one is left to the rest of the server.
_ALL_UP_TO = 4
_CGROUP = Path("/sys/fs/cgroup")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def thread_count(wanted: int | None = None) -> int:
    """`wanted`; None means the processors that this process may use, less one if there are many.

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


def helper_processors(n_threads: int) -> list[int]:
    """The processor for each thread except the caller's, which keeps the first one. Threads get a
    core each while there are any. Empty when there are more threads than processors.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if n_threads > len(allowed):
        return []
    firsts = {_siblings(each): each for each in reversed(allowed)}.values()
    return (sorted(firsts) + sorted(set(allowed) - set(firsts)))[1:n_threads]


def _cores(processors: set[int]) -> int:
    """Processors to use. If there are many, those that share a core count once: two threads on it
    would only share its arithmetic and its bandwidth.
    """
    if len(processors) <= _ALL_UP_TO:
        return len(processors)
    return len({_siblings(each) for each in processors})


def _siblings(processor: int) -> str:
    """The processors that share its core; itself if the machine does not say."""
    try:
        return Path(_TOPOLOGY.format(processor)).read_text("ascii").strip()
    except OSError:
        return str(processor)


def processor_limit() -> float | None:
    """How many processors the time limit of a control group (a container) amounts to; None: no
    limit.
    """
    try:
        words = (_CGROUP / "cpu.max").read_text("ascii").split()
    except OSError:
        words = _quota_of_version_1()
    if len(words) != 2 or words[0].strip() in ("max", "-1"):
        return None
    return int(words[0]) / int(words[1])


def _quota() -> int:
    """That limit rounded down: a thread paused in the middle of an op holds up all others."""
    limit = processor_limit()
    return MAX_THREADS if limit is None else max(1, int(limit))


def _quota_of_version_1() -> list[str]:
    try:
        return [(_CGROUP / "cpu" / f"cpu.cfs_{it}_us").read_text() for it in ("quota", "period")]
    except OSError:
        return []
