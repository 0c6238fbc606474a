"""The native module `kernels` for CUDA, or why it is missing. Only this file imports it.

It can be imported without a GPU and without a driver, which it only needs once used. `_cuda.pyi`
declares what it exposes. It takes addresses of device memory and numbers and checks nothing, so
callers check dtype, shape, device and contiguity first.
"""

try:
    from . import _cuda as kernels
except ImportError as error:  # built without a CUDA compiler: torch computes instead
    MISSING = str(error)
else:
    MISSING = ""

__all__ = ["MISSING", "kernels"]
