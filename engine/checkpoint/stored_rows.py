"""Rows of a stored matrix, read from its file whenever they are needed.

Owns reading and decoding a few rows of a table that is too large to be loaded. Knows no model.
"""

import os
import weakref
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..files import open_regular
from ..gguf.blocks import BlockRows
from ..gguf.decode import dequantize
from ..gguf.types import READ
from ..stored_tensor import StoredTensor
from .stored import NUMPY_DTYPES, as_float32

Rows = npt.NDArray[np.float32]


class StoredRows:
    """A matrix (n_out, n_in) that stays in its file. The system caches what is read often."""

    def __init__(self, tensor: StoredTensor) -> None:
        """Keeps the file open. Raises ModelLoadError for a file that cannot be opened."""
        self.n_out, self.n_in = tensor.shape
        self._tensor = tensor
        self._row_bytes = tensor.n_bytes // self.n_out
        with open_regular(tensor.file) as stream:
            self._descriptor = os.dup(stream.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, indices: Iterable[int]) -> Rows:
        """The rows (n, n_in). Raises ModelLoadError when the file has changed since it was
        described.
        """
        if os.fstat(self._descriptor).st_mtime_ns != self._tensor.modified_ns:
            raise self._changed()
        return self._numbers(b"".join(map(self._row, indices)))

    def _row(self, index: int) -> bytes:
        begin = self._tensor.begin + index * self._row_bytes
        data = os.pread(self._descriptor, self._row_bytes, begin)
        if len(data) < self._row_bytes:
            raise self._changed()
        return data

    def _numbers(self, data: bytes) -> Rows:
        dtype = NUMPY_DTYPES.get(self._tensor.dtype)
        if dtype is None:
            rows = np.frombuffer(data, np.uint8).reshape(-1, self._row_bytes)
            return dequantize(BlockRows(READ[self._tensor.dtype], rows))
        return as_float32(np.frombuffer(data, dtype).reshape(-1, self.n_in))

    def _changed(self) -> ModelLoadError:
        tensor = self._tensor
        return ModelLoadError(
            f"{tensor.file}: {tensor.name}: the file has changed since the model was loaded; load "
            f"it again"
        )
