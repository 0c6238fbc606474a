"""Packed matrices on disk, so that the next start of the same model packs nothing.

Owns the directory: one file per checkpoint and format, which of them go when room is needed, and
that trouble with it never ends a start: what cannot be read or written is one warning. A complete
file is never written to again, only replaced or removed, because servers may have it mapped. Knows
no matrix by name.
"""

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ...checkpoint.sample import sample_checkpoint
from ...errors import ModelLoadError
from ...files import open_if_regular
from ...native.cpu import kernels
from ...stored_tensor import StoredTensor
from ..arguments import Matrix
from ..formats import Format, packed_bytes, sections
from .matrix import CpuMatrix, PanelMatrix, StackedMatrix, stacked
from .panel_file import WRITE_BUFFER, PanelFileError, PanelWriter, read_panels

logger = logging.getLogger(__name__)

# Packing less takes tenths of a second.
SMALLEST_BYTES = 32 * 2**20
_LARGEST_TOTAL = 32 * 2**30
# A younger file without a lock may have a writer that is about to lock it.
_ABANDONED_AFTER_S = 60
_SUFFIX, _UNFINISHED = ".panels", ".unfinished"


class PanelCache:
    """The matrices of one model: all from an entry, or none, and then they go into a new one."""

    def __init__(self, kept: Mapping[str, PanelMatrix], new: "_NewEntry | None" = None) -> None:
        self._kept = kept
        self._new = new

    @property
    def is_complete(self) -> bool:
        """Whether the matrices were packed before."""
        return bool(self._kept)

    def get(
        self, name: str, parts: Sequence[tuple[int, ...]], format_: Format, *, gated: bool = False
    ) -> CpuMatrix | None:
        """What parts of these shapes became in `format_`; None for another shape or size."""
        own = sections(format_, len(parts))
        names = _section_names(name, len(own))
        kept = []
        for section, (format_of, which) in zip(names, own, strict=True):
            matrix = self._get_section(section, parts[which], format_of, gated=gated)
            if matrix is None:
                return None
            kept.append(matrix)
        return stacked(kept)

    def _get_section(
        self, name: str, parts: Sequence[tuple[int, ...]], format_: str, *, gated: bool
    ) -> PanelMatrix | None:
        matrix = self._kept.get(name)
        if matrix is None:
            return None
        rows, n_in = [shape[0] for shape in parts], parts[0][1]
        n_bytes = packed_bytes(format_, rows, n_in, gated=gated)
        found = (matrix.n_out, matrix.n_in, matrix.format, matrix.panels.size)
        if found != (sum(rows), n_in, format_, n_bytes):
            logger.warning("%s: is kept as another matrix: it is packed anew", name)
            return None
        return matrix

    def put(self, name: str, matrix: Matrix) -> None:
        """`name` is that of its parts."""
        assert isinstance(matrix, PanelMatrix | StackedMatrix), "other devices have no panels"
        if self._new is not None:
            names = _section_names(name, len(matrix.sections))
            for section, own in zip(names, matrix.sections, strict=True):
                self._new.append(section, own)


@contextmanager
def open_panels(
    directory: Path, tensors: Mapping[str, StoredTensor], format_: str, *, n_bytes: int
) -> Iterator[PanelCache]:
    """The entry of a checkpoint in `format_`, or a new one of about `n_bytes`.

    A new one stays when the block ends without an error.
    """
    key = _key(tensors, format_)
    if key is None:  # reading the checkpoint will say why
        yield PanelCache({})
        return
    kept = _read_entry(directory, format_, key)
    if kept is not None:
        yield PanelCache(kept)
        return
    new = _NewEntry(directory, f"{format_}-{_place(tensors)}", key, n_bytes)
    try:
        yield PanelCache({}, new)
        if _key(tensors, format_) == key:  # otherwise the checkpoint was replaced meanwhile
            new.finish()
    finally:
        new.discard()


def _section_names(name: str, n: int) -> list[str]:
    """Of the sections of a matrix, as they are kept."""
    return [name] if n == 1 else [f"{name} [{i}]" for i in range(n)]


def _key(tensors: Mapping[str, StoredTensor], format_: str) -> str | None:
    """Differs when the panels would, or should, differ. None means that a file cannot be read."""
    # The instruction set stands for the processor: on another one, another order may be faster.
    packed = f"{kernels.LAYOUT_VERSION} {format_} {kernels.isa()}"
    digest = hashlib.sha256(packed.encode())
    try:
        sample_checkpoint(tensors, digest)
    except ModelLoadError:
        return None
    return digest.hexdigest()[:32]


def _place(tensors: Mapping[str, StoredTensor]) -> str:
    """Names the files of a checkpoint: an older entry for them is obsolete."""
    digest = hashlib.sha256()
    for file in sorted({tensor.file for tensor in tensors.values()}):
        digest.update(os.fsencode(file.parent.resolve() / file.name) + b"\0")
    return digest.hexdigest()[:16]


def _read_entry(directory: Path, format_: str, key: str) -> Mapping[str, PanelMatrix] | None:
    """Looks at all directories: the same checkpoint may have been packed in another place."""
    for file in directory.glob(f"{format_}-*-{key}{_SUFFIX}"):
        try:
            kept = read_panels(file, key)
        except PanelFileError as error:
            logger.warning("%s %s: the weights are packed anew", file, error)
            with suppress(OSError):
                file.unlink()
        except OSError as error:
            logger.warning("%s: %s: the weights are packed anew", file, error.strerror)
        else:
            with suppress(OSError):
                os.utime(file)  # the least recently used are removed first
            return kept
    return None


class _NewEntry:
    """A file that gets its name once it is complete. After its first failure it does nothing."""

    def __init__(self, directory: Path, prefix: str, key: str, n_bytes: int) -> None:
        self._target = directory / f"{prefix}-{key}{_SUFFIX}"
        self._writer: PanelWriter | None = None
        with self._failures_logged():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_room(directory, prefix, n_bytes)
            descriptor, name = tempfile.mkstemp(_UNFINISHED, dir=directory)
            self._unfinished = Path(name)
            self._file = os.fdopen(descriptor, "wb", buffering=WRITE_BUFFER)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._writer = PanelWriter(self._file, key)

    def append(self, name: str, matrix: PanelMatrix) -> None:
        with self._failures_logged():
            if self._writer is not None:
                self._writer.append(name, matrix)

    def finish(self) -> None:
        with self._failures_logged():
            if self._writer is not None:
                self._writer.finish()
                self._unfinished.replace(self._target)
                self._writer = None
                self._file.close()

    def discard(self) -> None:
        """Removes the file, unless it is finished."""
        if self._writer is not None:
            self._writer = None
            with suppress(OSError):
                self._unfinished.unlink()
            with suppress(OSError):  # what is left in its buffer may not fit on the disk either
                self._file.close()

    @contextmanager
    def _failures_logged(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            logger.warning(
                "%s: %s: the next start packs the weights again",
                self._target.parent,
                error.strerror,
            )


def _make_room(directory: Path, prefix: str, n_bytes: int) -> None:
    """Removes abandoned files and those that `prefix` replaces, then the least recently used until
    `n_bytes` more are within the limit. Raises OSError when `n_bytes` alone exceed it.
    """
    if n_bytes > _LARGEST_TOTAL:
        raise OSError(None, f"{n_bytes / 1e9:.0f} GB are more than a cache may hold")
    for file in directory.glob(f"*{_UNFINISHED}"):
        with suppress(OSError):
            if _is_abandoned(file):
                file.unlink()
    for file in directory.glob(f"{prefix}-*{_SUFFIX}"):
        with suppress(OSError):
            file.unlink()
    entries = []
    for file in directory.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            stat = file.stat()
            entries.append((stat.st_mtime_ns, stat.st_size, file))
    total = n_bytes + sum(size for _, size, _ in entries)
    for _, size, file in sorted(entries):
        if total <= _LARGEST_TOTAL:
            break
        file.unlink(missing_ok=True)
        total -= size


def _is_abandoned(file: Path) -> bool:
    """Whether the process that wrote it has ended: its lock ended with it."""
    if time.time() - file.stat().st_mtime < _ABANDONED_AFTER_S:
        return False
    opened = open_if_regular(file)
    if opened is None:
        return True
    with opened as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
