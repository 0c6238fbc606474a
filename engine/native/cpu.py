"""The native module `kernels`, or why it is missing. Only this file imports it.

`_cpu.pyi` declares what it exposes. It takes addresses and numbers and checks nothing, so callers
check dtype, shape and contiguity first, and take `address` last.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from . import _cpu as kernels
except ImportError as error:  # no build for this interpreter: torch computes instead
    MISSING = str(error)
else:
    MISSING = ""

__all__ = ["MISSING", "address", "build", "check", "kernels"]


def address(array: npt.NDArray[Any] | None) -> int:
    """The address of the first element; 0 for None."""
    return 0 if array is None else kernels.address(array)


def build() -> str:
    """A hash of this module and of those that were built with it; "none" if it is missing."""
    if MISSING:
        return "none"
    file = Path(kernels.__file__)
    digest = hashlib.sha256()
    for module in sorted(file.parent.glob(f"_*{file.suffix}")):
        digest.update(np.memmap(module, np.uint8, "r").data)
    return digest.hexdigest()


def check(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """Kernels trust their pointers: raises ValueError, with the name, for a wrong array."""
    if array.dtype != dtype:
        raise ValueError(f"{name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: expected contiguous memory, got strides {array.strides}")
