"""What the active sequence holds, as a file of its own: saved, brought back bit for bit, forgotten.

Owns the form of the file: a header, the token ids, copies of the positions block by block, those of
the states of recurrent layers at one position, and a checksum of it all. A file is written beside
its place and then takes it. It belongs to the model, the number formats and the isolation key that
it was saved with: who could not reuse the sequence cannot reuse it from the file. Knows no name of
a file and no directory.
"""

import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ..abort import AbortFlag
from ..device.ops import Bytes
from ..errors import EngineError, InvalidInputError
from ..files import open_if_regular
from .prefix import PrefixCache
from .tree import packed, unpacked

_KIND = b"solitsl2"
# Kind, identity, the first position that layers with a window hold, tokens before the states of
# recurrent layers (0: no states follow), tokens, positions of a block.
_HEADER = struct.Struct("<8s32sIIII")
_CHECKSUM = struct.Struct("<I")
_ID_BYTES = 4
_BLOCK = 64


class SlotSize(NamedTuple):
    """What was written or read."""

    n_tokens: int
    n_bytes: int
    """Of the file."""


class _Saved(NamedTuple):
    """What the header of a file says of its sequence."""

    first_kept: int
    """The first position that layers with a window hold."""
    n_state: int
    """Tokens before the states of recurrent layers; 0: there are none."""
    n_tokens: int


class Slot:
    """The active sequence of a cache. Nothing else may use the cache meanwhile."""

    def __init__(self, prefix: PrefixCache) -> None:
        self._prefix = prefix
        self._cache = prefix.cache
        unit = self._cache.positions.unit
        self._block = -(-_BLOCK // unit) * unit

    def save(self, file: Path, abort: AbortFlag) -> SlotSize:
        """Writes the sequence to `file`, in place of what is there.

        Raises EngineError if that fails or is aborted; the file is then as it was.
        """
        try:
            descriptor, name = tempfile.mkstemp(".unfinished", dir=file.parent)
        except OSError as error:
            raise EngineError(f"the slot cannot be saved: {error.strerror}") from error
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                n_bytes = self._write(stream, abort)
            unfinished.replace(file)
        except OSError as error:
            raise EngineError(f"the slot cannot be saved: {error.strerror}") from error
        finally:
            with suppress(OSError):
                unfinished.unlink()
        return SlotSize(self._cache.length, n_bytes)

    def restore(self, file: Path, abort: AbortFlag) -> SlotSize:
        """Makes the sequence of `file` the active one. What was active is copied first, as before
        any other prompt.

        Raises InvalidInputError for a file that is missing, damaged or of another model, and
        EngineError if it is aborted. The cache is then as it was, or empty.
        """
        try:
            stream = open_if_regular(file)
        except (OSError, ValueError):
            stream = None
        if stream is None:
            raise _unusable("there is no such file")
        with stream:
            header = stream.read(_HEADER.size)
            saved = self._begin(header)
            try:
                return self._read(stream, header, saved, abort)
            except OSError as error:
                self._cache.clear()
                raise _unusable("it cannot be read") from error
            except BaseException:
                self._cache.clear()
                raise

    def erase(self) -> int:
        """Forgets the sequence, and the copies of it in memory and on disk. Returns how many tokens
        it had.
        """
        n_tokens = self._cache.length
        self._prefix.forget()
        return n_tokens

    def _write(self, stream: BinaryIO, abort: AbortFlag) -> int:
        """Returns the bytes written."""
        cache = self._cache
        n_state = cache.states.last_held(cache.length) if cache.states else 0
        header = _HEADER.pack(
            _KIND, self._prefix.identity, cache.first_kept, n_state, cache.length, self._block
        )
        checksum = n_bytes = 0
        begin: list[bytes | memoryview] = [header, packed(cache.token_ids)]
        for part in chain(begin, self._copies(abort), self._states(n_state)):
            stream.write(part)
            checksum, n_bytes = zlib.crc32(part, checksum), n_bytes + len(part)
        stream.write(_CHECKSUM.pack(checksum))
        return n_bytes + _CHECKSUM.size

    def _copies(self, abort: AbortFlag) -> Iterator[memoryview]:
        """Of one block after the other, in the same memory."""
        positions = self._cache.positions
        staged = np.empty(positions.n_bytes(self._block), np.uint8)
        for start, stop in self._blocks(self._cache.length):
            _check(abort)
            positions.copy_out(start, stop, staged)
            yield staged[: positions.n_bytes(stop - start)].data

    def _states(self, position: int) -> Iterator[memoryview]:
        states = self._cache.states
        copied = states.snapshot(position) if states and position else None
        if copied is not None:
            yield copied.data

    def _begin(self, header: bytes) -> _Saved:
        """Makes room for the sequence of that header."""
        cache = self._cache
        if len(header) < _HEADER.size or not header.startswith(_KIND):
            raise _unusable("it is no saved slot, or one of another version")
        _, identity, first_kept, n_state, n_tokens, block = _HEADER.unpack(header)
        if n_tokens > cache.max_seq_len:
            raise _unusable(f"it has {n_tokens} tokens; the context has {cache.max_seq_len}")
        if block != self._block or not self._prefix.replace(identity):
            raise _unusable("it belongs to another model, other number formats or another version")
        return _Saved(first_kept, n_state, n_tokens)

    def _read(
        self, stream: BufferedReader, header: bytes, saved: _Saved, abort: AbortFlag
    ) -> SlotSize:
        cache, n_block_bytes = self._cache, self._cache.positions.n_bytes
        ids = stream.read(saved.n_tokens * _ID_BYTES)
        checksum = zlib.crc32(ids, zlib.crc32(header))
        token_ids, n_bytes = unpacked(ids[: len(ids) // _ID_BYTES * _ID_BYTES]), len(header + ids)
        staged: Bytes = np.empty(n_block_bytes(self._block), np.uint8)
        for start, stop in self._blocks(len(token_ids)):
            _check(abort)
            part = staged[: n_block_bytes(stop - start)]
            if stream.readinto(part.data) != part.size:
                raise _unusable("it is cut short")
            checksum, n_bytes = zlib.crc32(part.data, checksum), n_bytes + part.size
            cache.append_copied(
                token_ids[start:stop], part, n_copied=stop - start, first_kept=saved.first_kept
            )
        states = stream.read(cache.states.n_bytes) if cache.states and saved.n_state else b""
        checksum, n_bytes = zlib.crc32(states, checksum), n_bytes + len(states)
        if len(token_ids) != saved.n_tokens or stream.read() != _CHECKSUM.pack(checksum):
            raise _unusable("it is damaged")
        if states:
            cache.return_to(saved.n_state, np.frombuffer(states, np.uint8))
        cache.forget_from(cache.length)
        return SlotSize(cache.length, n_bytes + _CHECKSUM.size)

    def _blocks(self, n_tokens: int) -> Iterator[tuple[int, int]]:
        for start in range(0, n_tokens, self._block):
            yield start, min(start + self._block, n_tokens)


def _check(abort: AbortFlag) -> None:
    if abort.is_set():
        raise EngineError("the slot's action was aborted")


def _unusable(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the slot cannot be restored from that file: {reason}", param="filename"
    )
