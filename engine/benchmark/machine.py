"""What this machine offers the engine: processor, instruction set, threads, memory, GPU driver.

Owns what is asked of the system, and a short measurement of how fast memory is read. Knows no
model, and gives no advice.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from ..device.memory import host_bytes
from ..device.open import driver_found, open_ops, torch_missing
from ..device.threads import processor_limit, thread_count
from ..native import cpu as native
from ..native import cuda
from ..native.cpu import kernels
from .bandwidth import isa, open_reader

_CPU_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_BUFFER_CACHES = 4  # how many last-level caches the buffer holds that is read to measure memory
_BUFFER_BYTES = 256 * 10**6  # and at least this many bytes


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of the first processor for data."""

    level: int
    n_bytes: int
    n_sharing: int  # processors that share it


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the engine finds it. None where the system does not say."""

    processor: str
    isa: str | None  # instruction set of the native kernels in use; None without them
    isas: tuple[str, ...]  # those that were built and that this processor has, the best one first
    native_missing: str  # why there are no native kernels; empty if there are
    n_processors: int  # that this process may use
    limit: float | None  # processors that a control group (a container) allows it
    n_threads: int  # that the engine computes on by default
    load: float  # programs that waited for a processor or computed, on average of a minute
    caches: tuple[Cache, ...]
    free_bytes: int | None  # memory that can be allocated now
    large_pages: str | None  # the system's setting: always, madvise or never
    has_driver: bool  # NVIDIA's
    cuda_missing: str  # why the native CUDA code cannot be used; empty if it can


def describe_machine() -> Machine:
    """Asks the system: milliseconds, or seconds on a machine with a GPU, where torch is loaded."""
    has_driver = driver_found()
    return Machine(
        processor=processor_name(),
        isa=isa(),
        isas=() if native.MISSING else tuple(kernels.supported_isas()),
        native_missing=native.MISSING,
        n_processors=len(os.sched_getaffinity(0)),
        limit=processor_limit(),
        n_threads=thread_count(),
        load=os.getloadavg()[0],
        caches=tuple(_caches()),
        free_bytes=host_bytes(),
        large_pages=_large_pages(),
        has_driver=has_driver,
        cuda_missing=(torch_missing() or cuda.MISSING) if has_driver else "",
    )


def processor_name() -> str:
    """The processor's own name, or its architecture if it tells none."""
    try:
        name = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text("utf-8"), re.MULTILINE)
    except OSError:
        name = None
    return name[1] if name else platform.machine()


def read_rate(machine: Machine, n_threads: int) -> float | None:
    """Bytes per second that this many threads read of main memory, in some 0.1 seconds; None
    without native kernels. Raises ModelLoadError for a number of threads that is out of range.
    """
    if machine.native_missing:
        return None
    largest = max((cache.n_bytes for cache in machine.caches), default=0)
    ops = open_ops(device="cpu", n_threads=n_threads)
    reader = open_reader(ops, max(_BUFFER_BYTES, _BUFFER_CACHES * largest))
    return None if reader is None else reader.bandwidth()


def _caches() -> list[Cache]:
    """Of data, the nearest first; empty where the system does not say."""
    found = []
    for index in sorted(_CACHES.glob("index*")):
        try:
            kind, level, size, shared = (
                (index / name).read_text("ascii").strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
        except OSError:
            continue
        if kind != "Instruction" and (number := re.fullmatch(r"(\d+)([KMG])", size)):
            n_bytes = int(number[1]) * _UNITS[number[2]]
            found.append(Cache(int(level), n_bytes, _n_listed(shared)))
    return found


def _n_listed(processors: str) -> int:
    """How many a list such as `0-3,8` names."""
    n = 0
    for part in processors.split(","):
        first, _, last = part.partition("-")
        n += int(last or first) - int(first) + 1
    return n


def _large_pages() -> str | None:
    try:
        setting = re.search(r"\[(\w+)\]", _LARGE_PAGES.read_text("ascii"))
    except OSError:
        return None
    return setting[1] if setting else None
