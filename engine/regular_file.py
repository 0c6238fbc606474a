"""Files that others wrote, opened with suspicion: those of a model directory and of a cache.

Owns that only regular files are opened, that nothing hangs on one that is not, and what counts as
missing. Links are followed, for the ecosystem's caches consist of them. Knows no format.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

from .errors import ModelLoadError


def is_there(path: Path) -> bool:
    """Whether a file that may be missing is there, whatever it is. A link that leads nowhere, or
    round in a circle, is a file that was meant to be there: ModelLoadError.
    """
    try:
        path.stat()
    except FileNotFoundError as error:
        for link in (path, path.parent):
            if link.is_symlink() and not link.exists():
                raise ModelLoadError(
                    f"{link}: is a link to {os.readlink(link)}, which does not exist"
                ) from error
        return False
    except NotADirectoryError:
        return False
    except (OSError, ValueError) as error:  # too many links, a NUL in the path
        raise ModelLoadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return True


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file to read it; anything else raises ModelLoadError."""
    try:
        stream = open_if_regular(path) if is_there(path) else None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelLoadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stream is None:
        reason = "is not a regular file" if is_there(path) else "does not exist"
        raise ModelLoadError(f"{path}: {reason}")
    return stream


def open_if_regular(path: Path) -> BufferedReader | None:
    """Opens a regular file to read it; None for anything else that is there. Raises OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    # What has become a pipe since then would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def size_of(stream: BufferedReader) -> int:
    """Bytes of an open file."""
    return os.fstat(stream.fileno()).st_size
