"""The native module `kernels` for CUDA, or why there is none. Only this file imports it.

That it can be imported does not say that there is a GPU, nor a driver: the module asks for both
when it is used. What it exposes stands in `_cuda.pyi`: addresses of device memory and numbers,
nothing is checked. So whoever calls it looks at dtype, shape, device and contiguity first.
"""

try:
    from . import _cuda as kernels
except ImportError as error:  # built where there was no CUDA compiler: torch serves
    MISSING = str(error)
else:
    MISSING = ""

__all__ = ["MISSING", "kernels"]
