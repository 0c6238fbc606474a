"""Files of a model directory, opened with suspicion.

Owns that only regular files are opened, and that nothing hangs on one that is not. Links are
followed, for the ecosystem's caches consist of them. Knows no format.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

from .errors import ModelLoadError


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file to read it; anything else raises ModelLoadError."""
    try:
        if not path.is_file():
            reason = "is not a regular file" if path.exists() else "does not exist"
            raise ModelLoadError(f"{path}: {reason}")
        # What has become a pipe since then would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelLoadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise ModelLoadError(f"{path}: is not a regular file")
    return stream


def size_of(stream: BufferedReader) -> int:
    """Bytes of an open file."""
    return os.fstat(stream.fileno()).st_size
