"""Which device computes: the choice, made once.

The only module that knows the implementations of the ops. torch is imported inside functions, only
if it computes or owns the memory.
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..checkpoint.config import ModelConfig
from ..errors import ModelLoadError
from ..native import cpu as native
from .formats import CUDA_FORMATS, QUANTIZED, chosen_format, cuda_format, stored_format
from .ops import Ops

logger = logging.getLogger(__name__)

_INSTALL_TORCH = 'install it: pip install "soliton[cuda]"'
# Devices of NVIDIA's driver, on Linux and in WSL.
_DRIVER = ("/dev/nvidiactl", "/dev/dxg")


def open_ops(
    *,
    device: str = "auto",
    dtype: str = "auto",
    quantize: str = "none",
    kv_cache: str = "auto",
    stored_dtypes: Iterable[str] = ("F32",),
    models: Sequence[ModelConfig] = (),
    n_threads: int | None = None,
    require_native: bool = False,
) -> Ops:
    """The ops of `device`. `dtype` and `quantize` choose the format of the weights, `kv_cache` that
    of keys and values. `models`: what will run on them.

    torch is imported on CUDA, and on a CPU without the native module. If torch computes what native
    code could, that is logged as a warning; with `require_native` it is an error. Without torch, a
    GPU that "auto" finds is not used, which is logged as well. Raises ModelLoadError.
    """
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (
        index and not (kind == "cuda" and index.isdecimal())
    ):
        raise ModelLoadError(f"device: must be auto, cpu, cuda or cuda:N, not {device!r}")
    if require_native and native.MISSING:
        raise ModelLoadError(f"the native module cannot be imported: {native.MISSING}")
    if kind == "cuda" or (kind == "auto" and _finds_cuda()):
        if missing := torch_missing():
            raise ModelLoadError(f"device: {device} needs torch: {missing}; {_INSTALL_TORCH}")
        format_ = cuda_format(dtype, quantize)
        return _open_cuda(
            "cuda" if kind == "auto" else device,
            format_,
            kv_cache=kv_cache,
            models=models,
            require_native=require_native,
        )
    if native.MISSING:
        if missing := torch_missing():
            raise ModelLoadError(
                f"the native module cannot be imported: {native.MISSING}; reinstall soliton for "
                f"this Python. torch could compute instead, but: {missing}; {_INSTALL_TORCH}"
            )
        from . import torch_ops

        logger.warning("native kernels missing, using torch instead: %s", native.MISSING)
        format_ = chosen_format(dtype, quantize, default="float32")
        return torch_ops.open_torch("cpu", format_, kv_cache=kv_cache, n_threads=n_threads)
    from .cpu.ops import CpuOps

    format_ = chosen_format(dtype, quantize, default=stored_format(stored_dtypes))
    return CpuOps(format_, kv_cache=kv_cache, n_threads=n_threads)


def _open_cuda(
    device: str,
    format_: str,
    *,
    kv_cache: str,
    models: Sequence[ModelConfig],
    require_native: bool,
) -> Ops:
    from ..native import cuda as cuda_native
    from . import torch_ops
    from .cuda.lacking import lacking_parts

    torch_ops.check_cuda(device)
    if format_ in CUDA_FORMATS:
        missing = cuda_native.MISSING or torch_ops.too_old(device)
        lacking = dict.fromkeys(part for model in models for part in lacking_parts(model))
        if not missing and lacking:
            missing = f"it has no kernels for {', '.join(lacking)}"
        if not missing:
            from .cuda.ops import CudaOps

            return CudaOps(device, cuda_native.kernels, format_, kv_cache=kv_cache)
        if require_native:
            raise ModelLoadError(
                f"device: {device}: the native CUDA module cannot be used: {missing}"
            )
        if format_ in QUANTIZED:
            raise ModelLoadError(
                f"quantize: {format_} needs native code, which cannot be used: {missing}"
            )
        logger.warning("native CUDA kernels missing, using torch instead: %s", missing)
    return torch_ops.open_torch(device, format_, kv_cache=kv_cache)


def _finds_cuda() -> bool:
    """Whether torch can use a GPU.

    It is asked only if NVIDIA's driver is installed: looking costs nothing, torch takes seconds.
    """
    if not driver_found():
        return False
    if missing := torch_missing():
        logger.warning("NVIDIA GPU not used, it needs torch: %s; %s", missing, _INSTALL_TORCH)
        return False
    from . import torch_ops

    return torch_ops.has_cuda()


def driver_found() -> bool:
    """Whether NVIDIA's driver is installed."""
    return any(Path(node).exists() for node in _DRIVER)


def torch_missing() -> str:
    """Why torch cannot be imported, which takes seconds; empty if it can."""
    try:
        from . import torch_ops  # noqa: F401
    except (ImportError, OSError) as error:
        return str(error)
    return ""
