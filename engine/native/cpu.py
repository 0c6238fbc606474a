"""The native module `kernels`, or why there is none. Only this file imports it.

What it exposes stands in `_cpu.pyi`: addresses and numbers, nothing is checked. So whoever calls
it looks at dtype, shape and contiguity first and takes `address` last.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from . import _cpu as kernels
except ImportError as error:  # no build for this interpreter: torch serves
    MISSING = str(error)
else:
    MISSING = ""

__all__ = ["MISSING", "address", "build", "check", "kernels"]


def address(array: npt.NDArray[Any] | None) -> int:
    """Where the elements are; 0 for None."""
    return 0 if array is None else kernels.address(array)


def build() -> str:
    """Differs when this module, or another one that was built with it, does."""
    if MISSING:
        return "none"
    file = Path(kernels.__file__)
    digest = hashlib.sha256()
    for module in sorted(file.parent.glob(f"_*{file.suffix}")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


def check(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """A kernel trusts its pointers: raises ValueError, with the name, for memory that is wrong."""
    if array.dtype != dtype:
        raise ValueError(f"{name}: expected {np.dtype(dtype)}, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: expected contiguous memory, got strides {array.strides}")
