"""Bytes that came from a file, with suspicion: how much they may unpack to, and what is said of
those that cannot be read.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from engine import InvalidInputError

from ..errors import StreamStateError

_MOST = 256 << 20
# What the readers of bytes raise that somebody has changed.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, zlib.error, InvalidInputError)


def unpacked(data: bytes) -> bytes:
    """Raises zlib.error for what is no zlib, is cut off, or would fill the memory."""
    unpacker = zlib.decompressobj()
    out = unpacker.decompress(data, _MOST)
    if not unpacker.eof:
        raise zlib.error(f"cut off, or over {_MOST} bytes")
    return out


@contextmanager
def undamaged() -> Iterator[None]:
    """Raises StreamStateError for bytes that cannot be read."""
    try:
        yield
    except _DAMAGE as error:
        raise StreamStateError("what is stored of the stream is damaged: delete it") from error
