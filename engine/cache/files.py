"""Copies of keys and values, and of states, on disk, so that a restart finds them again.

Owns the directory: one file per block, named by its key, so that processes that share the directory
write the same bytes under the same name. Only intact files of this model are used: the header has
its own checksum, and that of the data is checked when it is read. Damaged files are removed, and
failed writes are logged once a minute; neither fails a request. Files of other models stay until
room is needed and they are the least recently used. Knows no tree.
"""

import logging
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from ..device.ops import Bytes
from ..files import open_if_regular, size_of
from .tree import Block

logger = logging.getLogger(__name__)

_SUFFIX, _UNFINISHED = ".kv", ".unfinished"
_KIND, _STATE_KIND = b"solitkv1", b"solitst1"
# Kind, model, parent, key, size of the ids, size of the copy, its checksum; then the ids.
_HEADER = struct.Struct("<8s16s16s16sIQI")
_CHECKSUM = struct.Struct("<I")  # of the header and the ids, after both
# Writing a file takes milliseconds.
_ABANDONED_AFTER_S = 60
# After a failure, such as a full disk, nothing is written for this long.
_PAUSE_S = 60
# Room is made for this share of the budget at once. After writing as much, files that other
# processes wrote are counted again.
_STEPS = 10


class PrefixFileError(ValueError):
    """A file is not as it was written."""


class PrefixFiles:
    """The files of one model in a directory that may hold those of others."""

    def __init__(
        self,
        directory: Path,
        model: bytes,
        *,
        n_bytes: Callable[[Block], int],
        budget: int,
        on_lost: Callable[[Block], None],
    ) -> None:
        """`n_bytes(block)`: the size of its copy. `budget`: bytes of all files in the
        directory. `on_lost` is called for every block whose file is gone.
        """
        self._directory = directory
        self._model = model
        self._n_bytes = n_bytes
        self._budget = budget
        self._on_lost = on_lost
        self._known: dict[str, Block] = {}  # the blocks on disk, by file name
        self._resumes_at = time.monotonic()
        self._total = 0
        self._written = 0  # since the total was counted
        self._last_time_ns = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            self._pause(error)

    def __contains__(self, block: Block) -> bool:
        """Whether the block is on disk."""
        return self._file(block).name in self._known

    def scan(self) -> Iterator[Block]:
        """The blocks that earlier processes left. Removes damaged files of this model, and the
        oldest files beyond the budget.
        """
        with suppress(OSError):
            self._remove_abandoned()
        for file in sorted(self._directory.glob(f"{self._model.hex()}-*{_SUFFIX}")):
            try:
                block = self._read_header(file)
            except PrefixFileError as error:
                _remove(file, error)
            except OSError:
                continue
            else:
                self._known[file.name] = block
                yield block
        self._total = sum(size for _, size, _ in self._entries())
        with suppress(OSError):
            self._make_room(0, ())

    def write(self, block: Block, data: Bytes, *, kept: Container[bytes] = ()) -> None:
        """Writes the block, whose copy is the front of `data`, unless it is on disk already.

        Does nothing if there is no room without removing files of `kept`, and for a minute after a
        failure.
        """
        if block in self or time.monotonic() < self._resumes_at:
            return
        copied = data[: self._n_bytes(block)]
        header = self._header(block, copied)
        n_bytes = len(header) + copied.size
        try:
            if not self._make_room(n_bytes, kept):
                return
            descriptor, name = tempfile.mkstemp(_UNFINISHED, dir=self._directory)
            unfinished = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(header)
                    file.write(copied.data)
                self._set_time(unfinished)
                unfinished.replace(self._file(block))
            except BaseException:
                with suppress(OSError):
                    unfinished.unlink()
                raise
        except OSError as error:
            self._pause(error)
            return
        self._total += n_bytes
        self._written += n_bytes
        self._known[self._file(block).name] = block

    def read(self, block: Block, out: Bytes) -> bool:
        """Reads the copy into the front of `out`. Returns False if that fails; the file is lost."""
        file, copied = self._file(block), out[: self._n_bytes(block)]
        try:
            with _opened(file) as stream:
                header = stream.read(_header_bytes(block))
                if stream.readinto(copied.data) != copied.size or stream.read(1):
                    raise PrefixFileError("is cut short")
            if header != self._header(block, copied):
                raise PrefixFileError("is damaged")
        except PrefixFileError as error:
            _remove(file, error)
        except OSError:
            pass
        else:
            return True
        self._lose(file.name)
        return False

    def remove(self, block: Block) -> None:
        """Removes the block's file."""
        file = self._file(block)
        if self._known.pop(file.name, None) is not None:
            with suppress(OSError):
                file.unlink()

    def touch(self, path: Sequence[Block]) -> None:
        """`path` was used. Each of its files becomes younger than those after it."""
        for block in reversed(path):
            if block in self:
                with suppress(OSError):
                    self._set_time(self._file(block))

    def _read_header(self, file: Path) -> Block:
        with _opened(file) as stream:
            size = size_of(stream)
            fixed = stream.read(_HEADER.size)
            if len(fixed) < _HEADER.size:
                raise PrefixFileError("is too short")
            kind, model, parent, key, n_id_bytes, n_bytes, _ = _HEADER.unpack(fixed)
            if kind not in (_KIND, _STATE_KIND) or model != self._model:
                raise PrefixFileError("belongs to another version or model")
            if size != _HEADER.size + n_id_bytes + _CHECKSUM.size + n_bytes:
                raise PrefixFileError("is cut short")
            ids = stream.read(n_id_bytes)
            (checksum,) = _CHECKSUM.unpack(stream.read(_CHECKSUM.size))
        block = Block(parent, ids, is_state=kind == _STATE_KIND)
        is_sound = checksum == zlib.crc32(ids, zlib.crc32(fixed)) and block.key == key
        if not is_sound or n_bytes != self._n_bytes(block) or file != self._file(block):
            raise PrefixFileError("is damaged")
        return block

    def _header(self, block: Block, copied: Bytes) -> bytes:
        fixed = _HEADER.pack(
            _STATE_KIND if block.is_state else _KIND,
            self._model,
            block.parent,
            block.key,
            len(block.ids),
            copied.size,
            zlib.crc32(copied.data),
        )
        return fixed + block.ids + _CHECKSUM.pack(zlib.crc32(block.ids, zlib.crc32(fixed)))

    def _file(self, block: Block) -> Path:
        return self._directory / f"{self._model.hex()}-{block.key.hex()}{_SUFFIX}"

    def _set_time(self, file: Path) -> None:
        """Sets the file's time to now, never twice the same: it decides which files go first."""
        self._last_time_ns = max(time.time_ns(), self._last_time_ns + 1)
        os.utime(file, ns=(self._last_time_ns, self._last_time_ns))

    def _make_room(self, n_bytes: int, kept: Container[bytes]) -> bool:
        """Removes the least recently used files, of any model, except those of `kept`, until there
        is room. Raises OSError if `n_bytes` exceed the budget.
        """
        if n_bytes > self._budget:
            raise OSError(None, f"{n_bytes} bytes exceed its budget of {self._budget}")
        step = self._budget // _STEPS
        if self._total + n_bytes <= self._budget and self._written <= step:
            return True
        entries = sorted(self._entries())  # includes those of other processes
        self._total, self._written = sum(size for _, size, _ in entries), 0
        if self._total + n_bytes <= self._budget:
            return True
        for _, size, file in entries:
            known = self._known.get(file.name)
            if known is not None and known.key in kept:
                continue
            file.unlink(missing_ok=True)
            self._total -= size
            self._lose(file.name)
            if self._total + max(n_bytes, step) <= self._budget:
                break
        return self._total + n_bytes <= self._budget

    def _entries(self) -> list[tuple[int, int, Path]]:
        """Time, size and path of all files, of any model."""
        entries = []
        for file in self._directory.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                found = file.lstat()
                if stat.S_ISREG(found.st_mode):  # anything else is not ours to remove
                    entries.append((found.st_mtime_ns, found.st_size, file))
        return entries

    def _remove_abandoned(self) -> None:
        """Removes files that processes left unfinished when they ended."""
        for file in self._directory.glob(f"*{_UNFINISHED}"):
            if time.time() - file.stat().st_mtime > _ABANDONED_AFTER_S:
                file.unlink(missing_ok=True)

    def _lose(self, name: str) -> None:
        block = self._known.pop(name, None)
        if block is not None:
            self._on_lost(block)

    def _pause(self, error: OSError) -> None:
        self._resumes_at = time.monotonic() + _PAUSE_S
        logger.warning(
            "%s: %s: no prefixes are written to it for a minute",
            self._directory,
            error.strerror or error,
        )


def _opened(file: Path) -> BufferedReader:
    stream = open_if_regular(file)
    if stream is None:
        raise PrefixFileError("is not a regular file")
    return stream


def _header_bytes(block: Block) -> int:
    return _HEADER.size + len(block.ids) + _CHECKSUM.size


def _remove(file: Path, error: PrefixFileError) -> None:
    logger.warning("%s %s and is removed", file, error)
    with suppress(OSError):
        file.unlink()
