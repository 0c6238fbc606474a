"""The limits of the card: read and copy bandwidth, rate of bfloat16 products.

Owns the bounds that every figure is compared with, measured in the same run. All data are random:
zeros run faster.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from .place import DEVICE, IS_REHEARSAL
from .timing import seconds_each

_BUFFER_BYTES = 2**24 if IS_REHEARSAL else 4 * 2**30  # many times the largest cache
_PRODUCT = 64 if IS_REHEARSAL else 8192
# Made of read_bandwidth.cu by scripts/gpu_carry.py.
_READER = Path(__file__).parents[2] / "build" / "gpu-carry" / "read_bandwidth.so"

Reader = Callable[[torch.Tensor], object]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one card, per second."""

    read_bytes: float
    copy_bytes: float
    """Bytes read plus bytes written."""
    product_flops: float
    """bfloat16 products, summed in float32."""


def measure() -> Limits:
    read, copy = _bandwidths(torch.sum if IS_REHEARSAL else _reader())
    return Limits(read, copy, _product_rate())


def _bandwidths(reader: Reader) -> tuple[float, float]:
    words = torch.randint(-(2**62), 2**62, (_BUFFER_BYTES // 8,), device=DEVICE)
    half = words[: len(words) // 2]
    target = torch.empty_like(half)
    read = words.nbytes / seconds_each(lambda: reader(words), calls=10)
    copy = 2 * half.nbytes / seconds_each(lambda: target.copy_(half), calls=10)
    return read, copy


def _product_rate() -> float:
    shape = (_PRODUCT, _PRODUCT)
    a, b = (torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * _PRODUCT**3 / seconds_each(lambda: torch.mm(a, b, out=out), calls=10)


def _reader() -> Reader:
    """Reads a tensor of int64. Raises OSError without the library, RuntimeError for a wrong sum."""
    read_words = ctypes.CDLL(str(_READER)).read_words
    read_words.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip
    n_processors = torch.cuda.get_device_properties(0).multi_processor_count
    total = torch.zeros(1, dtype=torch.int32, device="cuda")

    def read(words: torch.Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        error = read_words(words.data_ptr(), words.nbytes, total.data_ptr(), n_processors, stream)
        if error:
            raise RuntimeError(f"reading memory: CUDA error {error}")

    some = torch.arange(1_000_002, device="cuda")
    read(some)
    if int(total.item()) % 2**32 != int(some.sum().item()) % 2**32:
        raise RuntimeError("what was read is not what was written")
    return read
