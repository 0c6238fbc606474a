"""Walks through the header of a file that nobody vouches for.

Owns that every count and length is compared with the size of the file before anything is allocated
for it, that all values together take at most 48 MB more memory than the file has bytes, and that
errors name file and byte. Knows no key and no tensor.
"""

import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..files import size_of

# A chat template takes some 20 kB.
MAX_STRING_BYTES = 2 * 2**20
_SPARE_BYTES = 44 * 2**20
_WINDOW_BYTES = 2**20
_LENGTH = struct.Struct("<Q")
_POINTER_BYTES = 8


class Allowance:
    """The memory that values may still take, over all files of a model."""

    def __init__(self) -> None:
        self._n_bytes = _SPARE_BYTES

    def grow(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes

    def spend(self, n_bytes: int) -> bool:
        """Whether there was enough."""
        self._n_bytes -= n_bytes
        return self._n_bytes >= 0


class Cursor:
    """A place in a file, which moves on with every value that is read."""

    def __init__(self, stream: BufferedReader, where: str, allowance: Allowance) -> None:
        self.size = size_of(stream)
        self.where = where
        self._stream = stream
        self._allowance = allowance
        self._window = b""  # the bytes of the file from `_begin` on
        self._begin = 0
        self._at = 0  # in the window
        allowance.grow(self.size)

    @property
    def position(self) -> int:
        """The byte of the file that comes next."""
        return self._begin + self._at

    def fail(self, reason: str, *, at: int | None = None) -> NoReturn:
        """`at`: the byte at fault, if it is not the next one."""
        place = self.position if at is None else at
        raise ModelLoadError(f"{self.where}: byte {place}: {reason}")

    def spend(self, n_bytes: int, what: str) -> None:
        """Memory for `what`, which does not come from the values themselves."""
        if not self._allowance.spend(n_bytes):
            self.fail(f"{what}: takes more memory than {self.size} bytes of file and 48 MB")

    def raw(self, n_bytes: int, what: str) -> bytes:
        self._need(n_bytes, what)
        self._at += n_bytes
        return self._window[self._at - n_bytes : self._at]

    def scalar(self, number: struct.Struct, what: str) -> Any:
        """One number, as `number` unpacks it."""
        (value,) = number.unpack(self.raw(number.size, what))
        return value

    def count(self, what: str, *, each: int) -> int:
        """How many things follow that take at least `each` bytes."""
        begin = self.position
        count = int(self.scalar(_LENGTH, what))
        left = self.size - self.position
        if count > left // each:
            self.fail(
                f"{what} is {count}, but of {self.size} bytes only {left} are left, and each takes "
                f"at least {each}",
                at=begin,
            )
        return count

    def string(self, what: str) -> str:
        (text,) = self.strings(1, what)
        return text

    def strings(self, n: int, what: str) -> list[str]:
        texts: list[str] = []
        while len(texts) < n:
            self._need_string(what)
            more = self._strings_in_window(n - len(texts), what)
            self.spend(sum(map(sys.getsizeof, more)) + _POINTER_BYTES * len(more), what)
            texts += more
        return texts

    def numbers(self, dtype: np.dtype[Any], n: int, what: str) -> npt.NDArray[Any]:
        """An array (n,). The caller has compared `n` with the size of the file."""
        self.spend(n * dtype.itemsize, what)
        values = np.empty(n, dtype)
        memory = values.view(np.uint8)
        known = self._window[self._at : self._at + memory.size]
        memory[: len(known)] = np.frombuffer(known, np.uint8)
        self._at += len(known)
        with self._unreadable():
            n_read = self._stream.readinto(memory[len(known) :].data)
        if n_read != memory.size - len(known):
            self._end(what)
        if n_read:  # the window was used up
            self._begin, self._window, self._at = self.position + n_read, b"", 0
        return values

    def _need_string(self, what: str) -> None:
        """Have the window hold the next string whole."""
        self._need(_LENGTH.size, what)
        (n_bytes,) = _LENGTH.unpack_from(self._window, self._at)
        left = self.size - self.position - _LENGTH.size
        if n_bytes > left:
            self.fail(f"{what}: a string of {n_bytes} bytes, but only {left} are left in the file")
        if n_bytes > MAX_STRING_BYTES:
            self.fail(f"{what}: a string of {n_bytes} bytes; at most {MAX_STRING_BYTES} are read")
        self._need(_LENGTH.size + n_bytes, what)

    def _strings_in_window(self, n: int, what: str) -> list[str]:
        """The next strings, at most `n`, that the window holds whole."""
        texts: list[str] = []
        window, at, length, add = self._window, self._at, _LENGTH.unpack_from, texts.append
        last = len(window) - _LENGTH.size
        try:
            # Vocabularies have hundreds of thousands: nothing here is called that need not be.
            for _ in range(n):
                if at > last:
                    break
                begin = at + 8
                end = begin + length(window, at)[0]
                if end > len(window):
                    break
                add(window[begin:end].decode())
                at = end
        except UnicodeDecodeError as error:
            self.fail(f"{what}: is not UTF-8", at=self._begin + at + 8 + error.start)
        self._at = at
        return texts

    def _need(self, n_bytes: int, what: str) -> None:
        """Have the window hold the next `n_bytes`."""
        if len(self._window) - self._at >= n_bytes:
            return
        if n_bytes > self.size - self.position:
            self._end(what)
        rest = self._window[self._at :]
        with self._unreadable():
            more = self._stream.read(max(n_bytes, _WINDOW_BYTES) - len(rest))
        self._begin, self._window, self._at = self.position, rest + more, 0
        if len(self._window) < n_bytes:
            self._end(what)

    def _end(self, what: str) -> NoReturn:
        self.fail(f"{what}: the file ends at byte {self.size}: truncated or damaged; get it again")

    @contextmanager
    def _unreadable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ModelLoadError(f"{self.where}: {error.strerror or error}") from error
