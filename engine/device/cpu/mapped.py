"""Files that are used where the system caches them. Owns when that is as fast as memory of our own,
and safe. Knows no format.
"""

import mmap
import os
from contextlib import suppress
from io import BufferedReader

import numpy as np
import numpy.typing as npt

from ...native import cpu as native
from .memory import LARGE_PAGE

_ENOUGH = 0.95  # of the large pages that a file could fill


def mapped(stream: BufferedReader, n_bytes: int) -> npt.NDArray[np.uint8] | None:
    """The first `n_bytes` of a file, read-only, without a copy. None where they would be in small
    pages, which a decode step reads more slowly, or where another machine could remove the file.

    The memory stays valid when the file is replaced or removed. A file that is cut meanwhile kills
    the process, so this is for files that nobody ever writes to again.
    """
    if n_bytes < LARGE_PAGE or not _is_on_a_local_disk(stream):
        return None
    try:
        memory = _mapping(stream, n_bytes)
        if not _is_in_large_pages(memory):
            # Copied or read by others, it is in small pages. One page shows whether a file system
            # has large ones before the whole file comes from the disk again.
            for n in (LARGE_PAGE, n_bytes):
                del memory
                os.posix_fadvise(stream.fileno(), 0, n, os.POSIX_FADV_DONTNEED)
                memory = _mapping(stream, n)
                if not _is_in_large_pages(memory):
                    return None
    except (OSError, ValueError):  # no memory can be mapped, or the file was cut just now
        return None
    return memory


def _mapping(stream: BufferedReader, n_bytes: int) -> npt.NDArray[np.uint8]:
    """Each large page of it was touched, so that the system has found it or read it."""
    pages = mmap.mmap(stream.fileno(), n_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    with suppress(OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    memory[::LARGE_PAGE].max()
    return memory


def _is_on_a_local_disk(stream: BufferedReader) -> bool:
    """Network file systems, which have no device of their own, can lose a file that is in use."""
    return os.major(os.fstat(stream.fileno()).st_dev) != 0


def _is_in_large_pages(memory: npt.NDArray[np.uint8]) -> bool:
    return _large_bytes(memory) >= _ENOUGH * (memory.size // LARGE_PAGE) * LARGE_PAGE


def _large_bytes(memory: npt.NDArray[np.uint8]) -> int:
    """How much of a mapped file is in large pages; 0 where the system does not say."""
    begin = f"{native.address(memory):08x}-"
    # It is not read to its end: the system counts the pages of each area as it comes to it.
    with suppress(OSError), open("/proc/self/smaps") as areas:
        for line in areas:
            if line.startswith(begin):
                break
        for line in areas:
            if line.startswith("FilePmdMapped:"):
                return int(line.split()[1]) * 1024
    return 0
