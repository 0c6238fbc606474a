"""Kept answers on disk, so that a restart finds them again.

Owns the directory: one file per answer, named by a digest of whose it is and of its id. A file is
written beside and renamed, so nothing half-written is ever read. The time of a file is when its
answer was last read. Files that are not of this server (of another model, another API key, a newer
version, damaged) are left alone until they are too old or the directory is too large. All writing
is done on a thread of its own; what fails there is logged and fails no stream.
"""

import asyncio
import fcntl
import hashlib
import logging
import math
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from .file import KeptFileError, read_record, recorded
from .kept import Kept

_logger = logging.getLogger(__name__)

_SUFFIX, _UNFINISHED, _LOCK = ".stream", ".unfinished", "lock"
# After a failure, such as a full disk, it is logged no more for this long.
_SILENT_S = 60


class KeptDirectoryError(Exception):
    """The directory cannot be used; in words for the operator."""


class _Foreign(NamedTuple):
    """A file that is not of this server."""

    time: float
    n_bytes: int
    path: Path


class KeptFiles:
    """The files of one server in a directory that it has to itself. Used on the event loop."""

    def __init__(
        self,
        directory: Path,
        *,
        owners: Mapping[str, str],
        fingerprints: Collection[str],
        max_bytes: int,
        seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`owners`: by caller, whose files these are. `fingerprints`: of the engines. `max_bytes`
        of all files in the directory; `seconds`: how old one may become. Raises KeptDirectoryError.
        """
        self._directory = directory
        self._owners = dict(owners)
        self._callers = {owner: caller for caller, owner in owners.items()}
        self._fingerprints = frozenset(fingerprints)
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._foreign: list[_Foreign] = []  # the oldest first
        self._sizes: dict[str, int] = {}  # of the own files, by name
        self._pending: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()  # guards what is pending
        self._is_busy = self._is_closed = False
        self._silent_until = -math.inf
        self._thread = ThreadPoolExecutor(1, "kept-files")
        self._held = _taken(directory)

    def load(self) -> list[tuple[Kept, float]]:
        """The answers that earlier processes left, the least recently read first, each with the
        seconds since then. Files that are too old are removed.
        """
        found, why_not = list[tuple[float, Kept]](), dict[str, int]()
        for path in sorted(self._directory.iterdir()):
            if path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)
                continue
            about = path.lstat()
            if path.suffix != _SUFFIX or not stat.S_ISREG(about.st_mode):
                continue
            if self._clock() - about.st_mtime >= self._seconds:
                path.unlink(missing_ok=True)
                continue
            try:
                found.append((about.st_mtime, self._read(path, about.st_size)))
                self._sizes[path.name] = about.st_size
            except KeptFileError as error:
                self._foreign.append(_Foreign(about.st_mtime, about.st_size, path))
                if error.args[1:]:
                    why_not[error.args[1]] = why_not.get(error.args[1], 0) + 1
                else:
                    _logger.warning("%s %s and is not read", path, error)
            except OSError as error:
                _logger.warning("%s: %s", path, error.strerror or error)
        self._foreign.sort()
        for why, n in why_not.items():
            _logger.warning("%s: %d kept streams are %s and are not read", self._directory, n, why)
        self._make_room()
        found.sort(key=lambda pair: pair[0])
        return [(kept, max(0.0, self._clock() - read_at)) for read_at, kept in found]

    def put(self, kept: Kept, *, age: float) -> None:
        """Write it as it is now: it has ended or has been put down. `age`: seconds since it was
        last read.
        """
        owner, read_at = self._owners[kept.request.key], self._clock() - age
        record = recorded(kept, owner=owner)
        name = _name(owner, kept.id)
        self._do(name, lambda: self._write(name, record.to_bytes(), read_at))

    def touch(self, kept: Kept) -> None:
        """It was read just now."""
        name, now = self._name(kept), self._clock()
        with self._lock:
            before = self._pending.pop(name, None)

        def work() -> None:
            if before is not None:
                before()
            if name in self._sizes:
                os.utime(self._directory / name, (now, now))

        if before is not None or name in self._sizes:
            self._do(name, work)

    def remove(self, kept: Kept) -> None:
        name = self._name(kept)
        self._do(name, lambda: self._unlink(name))

    async def written(self) -> None:
        """Wait until all that was asked for has been done."""
        await asyncio.wrap_future(self._thread.submit(lambda: None))

    async def close(self) -> None:
        """Finish what was asked for, and leave the directory to others."""
        await self.written()
        self._is_closed = True
        self._thread.shutdown()
        self._held.close()

    def _read(self, path: Path, size: int) -> Kept:
        if size > self._max_bytes:
            raise KeptFileError("is larger than --keep-streams-mb")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            stored = read_record(file.read(self._max_bytes + 1))
        if stored.fingerprint not in self._fingerprints:
            raise KeptFileError("", "of another model, build or number format")
        caller = self._callers.get(stored.owner)
        if caller is None:
            raise KeptFileError("", "of API keys that this server does not have")
        kept = stored.kept(caller)
        if path.name != self._name(kept):
            raise KeptFileError("has the name of another stream")
        return kept

    def _name(self, kept: Kept) -> str:
        return _name(self._owners[kept.request.key], kept.id)

    def _do(self, name: str, work: Callable[[], None]) -> None:
        """On the thread, instead of what waits to be done with the same file."""
        with self._lock:
            self._pending.pop(name, None)
            self._pending[name] = work
            if self._is_busy or self._is_closed:
                return
            self._is_busy = True
        self._thread.submit(self._work)

    # The methods below run on the thread.

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._is_busy = False
                    return
                name = next(iter(self._pending))
                work = self._pending.pop(name)
            try:
                work()
            except (OSError, ValueError) as error:
                self._tell(error)
            except Exception:
                _logger.exception("a kept stream could not be written")

    def _write(self, name: str, data: bytes, read_at: float) -> None:
        self._make_room(len(data) - self._sizes.get(name, 0))
        descriptor, unfinished = tempfile.mkstemp(_UNFINISHED, dir=self._directory)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                # Else a power cut could leave the new name with nothing behind it.
                os.fsync(file.fileno())
                os.utime(file.fileno(), (read_at, read_at))
            Path(unfinished).replace(self._directory / name)
            self._sizes[name] = len(data)
        except BaseException:
            with suppress(OSError):
                Path(unfinished).unlink()
            raise

    def _unlink(self, name: str) -> None:
        self._sizes.pop(name, None)
        (self._directory / name).unlink(missing_ok=True)

    def _make_room(self, n_more: int = 0) -> None:
        """Own files are as many as the memory holds; the others go when there is no room."""
        n_bytes = n_more + sum(self._sizes.values()) + sum(each.n_bytes for each in self._foreign)
        while self._foreign and n_bytes > self._max_bytes:
            oldest = self._foreign.pop(0)
            n_bytes -= oldest.n_bytes
            oldest.path.unlink(missing_ok=True)

    def _tell(self, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + _SILENT_S
            text = "%s: %s: a kept stream is not written; more of it is not told for a minute"
            _logger.warning(text, self._directory, getattr(error, "strerror", None) or error)


def _name(owner: str, id_: str) -> str:
    return hashlib.sha256(f"{owner}/{id_}".encode()).hexdigest()[:32] + _SUFFIX


def _taken(directory: Path) -> IO[bytes]:
    """What holds the directory for this process until it is closed. Raises KeptDirectoryError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = open(directory / _LOCK, "ab", opener=_private)  # noqa: SIM115
    except OSError as error:
        raise KeptDirectoryError(f"{directory}: {error.strerror or error}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held.close()
        raise KeptDirectoryError(
            f"{directory}: another server keeps its streams there; give each its own directory"
        ) from error
    return held


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
