"""Tensors as a checkpoint stores them, in whichever format: where they are, and their data.

Owns reading the data of one tensor. The headers that describe tensors are read by `safetensors.py`
and `gguf/header.py`. Knows no model.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..files import open_regular
from ..gguf.blocks import BlockRows
from ..gguf.decode import dequantize
from ..gguf.types import READ
from ..stored_tensor import StoredTensor
from . import mxfp4

PLAIN_DTYPES = ("F32", "F16", "BF16")
"""Those that store each number by itself."""
# numpy has no bfloat16: its bit patterns are read.
NUMPY_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_PIECE_BYTES = 2**22  # read at a time where two tensors are compared
_CHANGED = "the file has changed since its header was read"

# Fills memory (n,) with bytes of a tensor, from an offset into its data on.
ReadValues = Callable[[int, npt.NDArray[np.uint8]], None]
# Gives memory for an array of a shape and a type, like numpy.empty.
Empty = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The stored tensors by name."""

    file: Path
    """The file that lists them."""
    tensors: Mapping[str, StoredTensor]
    described_in: str = "config.json"
    """What asks for these tensors, for errors."""


def stored_values(tensor: StoredTensor, *, empty: Empty = np.empty) -> npt.NDArray[Any] | BlockRows:
    """The data of an F32, F16 or BF16 tensor, the latter as uint16 bit patterns; or the blocks of a
    quantised matrix. `empty` gives the memory.

    They are read, not mapped: if the file were truncated meanwhile, a mapping would kill the
    process. Raises ModelLoadError, also when the file has changed.
    """
    if tensor.dtype in PLAIN_DTYPES:
        return _read_whole(tensor, empty(tensor.shape, NUMPY_DTYPES[tensor.dtype]))
    if tensor.parts:
        codes, scales = (_read_whole(part, empty(part.shape, np.uint8)) for part in tensor.parts)
        return BlockRows(READ[tensor.dtype], mxfp4.blocks(codes, scales))
    type_, (*n, n_in) = READ[tensor.dtype], tensor.shape
    return BlockRows(type_, _read_whole(tensor, empty((*n, type_.row_bytes(n_in)), np.uint8)))


def plain_values(tensor: StoredTensor) -> npt.NDArray[Any]:
    """The same, with blocks as the float32 numbers that they stand for."""
    values = stored_values(tensor)
    if not isinstance(values, BlockRows):
        return values
    rows = values.rows.reshape(-1, values.rows.shape[-1])
    return dequantize(BlockRows(values.type, rows)).reshape(tensor.shape)


def have_same_data(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether two tensors hold the same bytes. Raises ModelLoadError."""
    if (one.dtype, one.shape, one.n_bytes) != (other.dtype, other.shape, other.n_bytes):
        return False
    with open_values(one) as read_one, open_values(other) as read_other:
        for begin in range(0, one.n_bytes, _PIECE_BYTES):
            n = min(_PIECE_BYTES, one.n_bytes - begin)
            pieces = np.empty((2, n), np.uint8)
            read_one(begin, pieces[0])
            read_other(begin, pieces[1])
            if not np.array_equal(pieces[0], pieces[1]):
                return False
    return True


def as_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A copy; of uint16, the bfloat16 numbers whose bits they are."""
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _read_whole(tensor: StoredTensor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    with open_values(tensor) as read:
        read(0, values.reshape(-1).view(np.uint8))
    return values


@contextmanager
def open_values(tensor: StoredTensor) -> Iterator[ReadValues]:
    """A function that reads the data of a tensor, whole or in parts, on any thread. Raises
    ModelLoadError, on exit also when the file has changed.
    """

    def read(begin: int, memory: npt.NDArray[np.uint8]) -> None:
        view = memory.data
        while view:
            try:
                n = os.preadv(stream.fileno(), [view], tensor.begin + begin)
            except OSError as error:
                raise _unreadable(tensor, error.strerror or str(error)) from error
            if not n:
                raise _unreadable(tensor, _CHANGED)
            begin, view = begin + n, view[n:]

    with open_regular(tensor.file) as stream:
        yield read
        if os.fstat(stream.fileno()).st_mtime_ns != tensor.modified_ns:
            raise _unreadable(tensor, _CHANGED)


def _unreadable(tensor: StoredTensor, reason: str) -> ModelLoadError:
    return ModelLoadError(f"{tensor.file}: {tensor.name}: {reason}")
