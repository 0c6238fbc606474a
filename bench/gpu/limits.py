"""The limits of the card: read and copy bandwidth, rate of bfloat16 products.

Owns the bounds that every figure is compared with, measured in the same run. All data are random:
zeros run faster.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from .timing import seconds_each

_BUFFER_BYTES = 4 * 2**30  # many times the largest cache
_PRODUCT = 8192
_SOURCE = Path(__file__).with_name("read_bandwidth.cu")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one card, per second."""

    read_bytes: float
    copy_bytes: float
    """Bytes read plus bytes written."""
    product_flops: float
    """bfloat16 products, summed in float32."""


def measure(work_directory: Path) -> Limits:
    """`work_directory`: where the reader is built."""
    read, copy = _bandwidths(_reader(work_directory))
    return Limits(read, copy, _product_rate())


def _bandwidths(reader: Callable[[torch.Tensor], None]) -> tuple[float, float]:
    words = torch.randint(-(2**62), 2**62, (_BUFFER_BYTES // 8,), device="cuda")
    half = words[: len(words) // 2]
    target = torch.empty_like(half)
    read = words.nbytes / seconds_each(lambda: reader(words), calls=10)
    copy = 2 * half.nbytes / seconds_each(lambda: target.copy_(half), calls=10)
    return read, copy


def _product_rate() -> float:
    shape = (_PRODUCT, _PRODUCT)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * _PRODUCT**3 / seconds_each(lambda: torch.mm(a, b, out=out), calls=10)


def _reader(directory: Path) -> Callable[[torch.Tensor], None]:
    """Reads a tensor of int64; compiled for this card. Raises RuntimeError if a value is wrong."""
    library = directory / "read_bandwidth.so"
    major, minor = torch.cuda.get_device_capability()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise RuntimeError("nvcc is not in PATH: the reader of memory cannot be built")
    subprocess.run(
        [
            nvcc, "-std=c++17", "-O3", f"-arch=sm_{major}{minor}", "-shared",
            "-Xcompiler=-fPIC", "-o", library, _SOURCE,
        ],
        check=True,
    )  # fmt: skip
    read_words = ctypes.CDLL(str(library)).read_words
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
