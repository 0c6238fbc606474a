"""Directories that replicas keep things in: each has its own, and one cluster all of them.

Owns how a replica gets its directory, and with it its name: the first one that no other replica
has, so that the replicas of the next start find again what their ids name. Knows nothing of what is
in there.
"""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from .ids import NAME, new_name

_CLUSTER, _REPLICA = "cluster.lock", "replica.lock"
_PREFIX = "replica-"
_OWNER_BYTES = 1024


class DirectoryInUseError(Exception):
    """Another cluster has the directory; in words for the operator."""


class Place(NamedTuple):
    """A replica's part of a directory."""

    name: str
    """Of the replica."""
    path: Path
    held: tuple[int, ...]
    """Descriptors of locked files."""

    def close(self) -> None:
        """Let others have it."""
        for descriptor in self.held:
            os.close(descriptor)


def taken_place(directory: Path, *, cluster: str) -> Place:
    """The part of `directory` of a replica of this cluster. Raises DirectoryInUseError, and OSError
    if the directory cannot be used.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = _shared_lock(directory, cluster)
    for path in sorted(directory.glob(f"{_PREFIX}*")):
        name = path.name.removeprefix(_PREFIX)
        if NAME.fullmatch(name) and (lock := _exclusive_lock(path / _REPLICA)) is not None:
            return Place(name, path, (shared, lock))
    while True:
        name = new_name()
        path = directory / f"{_PREFIX}{name}"
        path.mkdir(mode=0o700)
        if (lock := _exclusive_lock(path / _REPLICA)) is not None:
            return Place(name, path, (shared, lock))


def _shared_lock(directory: Path, cluster: str) -> int:
    """The descriptor of a lock that all replicas of one cluster share."""
    file = _opened(directory / _CLUSTER)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        # Whoever has it exclusively is writing, and then shares it.
        fcntl.flock(file, fcntl.LOCK_SH)
        if os.pread(file, _OWNER_BYTES, 0) != cluster.encode():
            os.close(file)
            raise DirectoryInUseError(
                f"{directory} is in use by another cluster: give each cluster its own directory"
            ) from None
        return file
    os.ftruncate(file, 0)
    os.pwrite(file, cluster.encode(), 0)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _exclusive_lock(path: Path) -> int | None:
    file = _opened(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
