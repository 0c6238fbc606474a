"""GGUF files byte by byte, also such as no writer would write."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
    I64: "q", F64: "d",
}  # fmt: skip


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return u64(len(data)) + data


def _plain(kind: int, value: float | str | bytes) -> bytes:
    if kind == STRING:
        assert isinstance(value, str | bytes)
        return string(value)
    return struct.pack(f"<{_FORMATS[kind]}", value)


def pair(name: str | bytes, kind: int, value: float | str | bytes) -> bytes:
    """A key with one value."""
    return string(name) + u32(kind) + _plain(kind, value)


def array(
    name: str, kind: int, values: Sequence[float | str | bytes], *, count: int | None = None
) -> bytes:
    """A key with an array; `count`: the length that it claims to have."""
    length = len(values) if count is None else count
    items = b"".join(_plain(kind, value) for value in values)
    return string(name) + u32(ARRAY) + u32(kind) + u64(length) + items


class Entry(NamedTuple):
    """A tensor in the table; `sizes` begin with the length of a row, as they do in files."""

    name: str | bytes
    sizes: tuple[int, ...]
    type_id: int
    offset: int
    n_dims: int | None = None

    def packed(self) -> bytes:
        n_dims = len(self.sizes) if self.n_dims is None else self.n_dims
        sizes = b"".join(map(u64, self.sizes))
        return string(self.name) + u32(n_dims) + sizes + u32(self.type_id) + u64(self.offset)


def gguf(
    pairs: Sequence[bytes] = (),
    entries: Sequence[Entry] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_pairs: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file. `n_entries` and `n_pairs`: the numbers that it claims to have."""
    head = magic + u32(version)
    head += u64(len(entries) if n_entries is None else n_entries)
    head += u64(len(pairs) if n_pairs is None else n_pairs)
    head += b"".join(pairs) + b"".join(entry.packed() for entry in entries)
    return head + bytes(-len(head) % alignment) + data
