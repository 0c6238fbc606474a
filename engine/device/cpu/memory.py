"""Memory that native code works in. Owns its alignment."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ...native import cpu as native

CACHE_LINE = 64  # panels are read in these

Floats = npt.NDArray[np.float32]


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros that begin on a cache line; the system gives their pages when they are first used."""
    wanted = np.dtype(dtype)
    n_bytes = wanted.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = np.zeros(n_bytes + CACHE_LINE, np.uint8)
    begin = -native.address(memory) % CACHE_LINE
    return memory[begin : begin + n_bytes].view(wanted).reshape(shape)
