"""The header of one GGUF file: its metadata, and the table of its tensors.

Owns the file format (versions 2 and 3, little endian) and its checks: when they are over, every
tensor is of a type that can be read, made of whole blocks, aligned, inside the file, and shares no
byte with another. Knows no split files and no key but the alignment.
"""

import math
import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import ModelLoadError
from ..files import open_regular, shown, shown_name
from ..stored_tensor import StoredTensor
from .cursor import Allowance, Cursor
from .metadata import Metadata
from .types import READ, UNREAD

MAGIC = b"GGUF"

_VERSIONS = (2, 3)
_MAX_DIMS = 4
_MAX_NAME_BYTES = 65_535
_ALIGNMENT = "general.alignment"
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
# The least that a key with its value takes in a file, and a tensor.
_LEAST_KEY_BYTES = 8 + 1 + 4 + 1
_LEAST_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
# About what Python takes for them, besides their strings.
_KEY_MEMORY, _TENSOR_MEMORY = 256, 768
_TYPES = {type_.id: type_ for type_ in READ.values()}


class Header(NamedTuple):
    """All that one file says before its data."""

    metadata: Metadata
    tensors: dict[str, StoredTensor]


def read_header(file: Path, allowance: Allowance) -> Header:
    """Raises ModelLoadError naming file, byte, what is there, and what should be."""
    with open_regular(file) as stream:
        cursor = Cursor(stream, str(file), allowance)
        modified_ns = os.fstat(stream.fileno()).st_mtime_ns
        _check_version(cursor)
        n_tensors = cursor.count("the number of tensors", each=_LEAST_TENSOR_BYTES)
        n_keys = cursor.count("the number of keys", each=_LEAST_KEY_BYTES)
        metadata = Metadata(_values(cursor, n_keys), str(file))
        entries = _entries(cursor, n_tensors)
        places = _Places(file, modified_ns, cursor, _alignment(metadata))
    tensors = [places.tensor(entry) for entry in entries]
    _check_apart(tensors)
    return Header(metadata, {tensor.name: tensor for tensor in tensors})


def _check_version(cursor: Cursor) -> None:
    magic = cursor.raw(4, "the magic")
    if magic != MAGIC:
        cursor.fail(f"not a GGUF file: begins with {shown(magic)}, not {MAGIC!r}", at=0)
    version = cursor.scalar(_U32, "the version")
    if version & 0xFFFF == 0:
        cursor.fail("is big endian; only little endian files are read", at=4)
    if version not in _VERSIONS:
        cursor.fail(f"version {version} of the file format; versions 2 and 3 are read", at=4)


def _values(cursor: Cursor, n: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _ in range(n):
        begin = cursor.position
        key = _name(cursor, "a key")
        cursor.spend(_KEY_MEMORY, "the metadata")
        if key in values:
            cursor.fail(f"the key {shown_name(key)} occurs twice", at=begin)
        values[key] = _value(cursor, shown_name(key))
    return values


def _name(cursor: Cursor, what: str) -> str:
    begin = cursor.position
    name = cursor.string(what)
    if not 0 < len(name.encode()) <= _MAX_NAME_BYTES:
        cursor.fail(f"{what} of {len(name.encode())} bytes; 1 to {_MAX_NAME_BYTES}", at=begin)
    return name


def _value(cursor: Cursor, what: str) -> Any:
    begin = cursor.position
    kind = cursor.scalar(_U32, f"{what}: the type of the value")
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return _array(cursor, what)
    if kind != _BOOL and kind not in _SCALARS:
        cursor.fail(f"{what}: unknown type of value {kind}; 0 to 12 are known", at=begin)
    return _numbers(cursor, kind, 1, what)[0].item()


def _array(cursor: Cursor, what: str) -> Any:
    begin = cursor.position
    kind = cursor.scalar(_U32, f"{what}: the type of an array")
    if kind == _ARRAY:
        cursor.fail(f"{what}: an array of arrays, which is not read", at=begin)
    if kind != _STRING and kind != _BOOL and kind not in _SCALARS:
        cursor.fail(
            f"{what}: unknown type of array {kind}; 0 to 8 and 10 to 12 are known", at=begin
        )
    each = 8 if kind == _STRING else np.dtype(_SCALARS.get(kind, "u1")).itemsize
    n = cursor.count(f"{what}: the length of the array", each=each)
    return cursor.strings(n, what) if kind == _STRING else _numbers(cursor, kind, n, what)


def _numbers(cursor: Cursor, kind: int, n: int, what: str) -> Any:
    begin = cursor.position
    values = cursor.numbers(np.dtype(_SCALARS.get(kind, "u1")), n, what)
    if kind != _BOOL:
        return values
    bad = np.flatnonzero(values > 1)
    if bad.size:
        cursor.fail(f"{what}: a bool is {values[bad[0]]}, not 0 or 1", at=begin + int(bad[0]))
    return values.view(np.bool_)


def _alignment(metadata: Metadata) -> int:
    alignment = metadata.integer(_ALIGNMENT, low=1, high=2**31, default=32)
    if alignment.bit_count() != 1:
        metadata.fail(_ALIGNMENT, alignment, "a power of two")
    return alignment


class _Entry(NamedTuple):
    """A tensor in the table; `place` is the byte of its entry."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int
    place: int


def _entries(cursor: Cursor, n: int) -> list[_Entry]:
    entries: dict[str, _Entry] = {}
    for _ in range(n):
        begin = cursor.position
        name = _name(cursor, "the name of a tensor")
        cursor.spend(_TENSOR_MEMORY, "the table of tensors")
        if name in entries:
            cursor.fail(f"the tensor {shown_name(name)} occurs twice", at=begin)
        shape = _shape(cursor, shown_name(name))
        type_id = cursor.scalar(_U32, f"{shown_name(name)}: the type")
        offset = cursor.scalar(_U64, f"{shown_name(name)}: the offset of the data")
        entries[name] = _Entry(name, shape, type_id, offset, begin)
    return list(entries.values())


def _shape(cursor: Cursor, what: str) -> tuple[int, ...]:
    begin = cursor.position
    n_dims = cursor.scalar(_U32, f"{what}: the number of dimensions")
    if not 1 <= n_dims <= _MAX_DIMS:
        cursor.fail(f"{what}: has {n_dims} dimensions; 1 to {_MAX_DIMS} are read", at=begin)
    begin = cursor.position
    sizes = [cursor.scalar(_U64, f"{what}: a dimension") for _ in range(n_dims)]
    for index, size in enumerate(sizes):
        if not 0 < size < 2**63:
            cursor.fail(f"{what}: a dimension of {size}; 1 to 2^63 - 1", at=begin + 8 * index)
    return tuple(reversed(sizes))


class _Places:
    """Where the data of the tensors are. Each is checked against the file."""

    def __init__(self, file: Path, modified_ns: int, cursor: Cursor, alignment: int) -> None:
        self._file = file
        self._modified_ns = modified_ns
        self._alignment = alignment
        self._size = cursor.size
        self._data_begin = cursor.position + -cursor.position % alignment

    def tensor(self, entry: _Entry) -> StoredTensor:
        where = f"{self._file}: byte {entry.place}: {shown_name(entry.name)}"
        type_ = _TYPES.get(entry.type_id)
        if type_ is None:
            name = UNREAD.get(entry.type_id, f"with the unknown number {entry.type_id}")
            raise ModelLoadError(
                f"{where}: is of the type {name}, which is not read; read are {', '.join(READ)}"
            )
        n_in = entry.shape[-1]
        if n_in % type_.columns:
            raise ModelLoadError(
                f"{where}: rows of {n_in} are not whole blocks of {type_.columns} ({type_.name})"
            )
        if entry.offset % self._alignment:
            raise ModelLoadError(
                f"{where}: data at offset {entry.offset}, not a multiple of {self._alignment}"
            )
        begin = self._data_begin + entry.offset
        n_bytes = math.prod(entry.shape[:-1]) * type_.row_bytes(n_in)
        if begin + n_bytes > self._size:
            raise ModelLoadError(
                f"{where}: {type_.name} of shape {list(entry.shape)} takes the bytes {begin} to "
                f"{begin + n_bytes}, but the file ends at {self._size}: truncated or damaged; "
                f"get it again"
            )
        return StoredTensor(
            file=self._file,
            name=entry.name,
            dtype=type_.name,
            shape=entry.shape,
            n_bytes=n_bytes,
            begin=begin,
            modified_ns=self._modified_ns,
        )


def _check_apart(tensors: Sequence[StoredTensor]) -> None:
    for one, other in pairwise(sorted(tensors, key=lambda tensor: tensor.begin)):
        end = one.begin + one.n_bytes
        if end > other.begin:
            raise ModelLoadError(
                f"{one.file}: {shown_name(other.name)}: its data begin at byte {other.begin}, but "
                f"those of {shown_name(one.name)} end at byte {end}: they overlap"
            )
