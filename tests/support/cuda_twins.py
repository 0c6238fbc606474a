"""Ops of the CUDA kernels, on the emulator or a GPU, and the same ops in plain torch."""

from dataclasses import fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.device import reference
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.ops import CudaOps
from engine.device.cuda.weights import CudaMatrix
from engine.device.reference import TorchMatrix
from engine.device.step import StepState
from tests.support.cuda_module import device_of, guarded


def ops_of(cuda: ModuleType) -> CudaOps:
    return CudaOps(device_of(cuda), cuda, "bfloat16")


def placed_at(cuda: ModuleType, values: npt.NDArray[np.float32]) -> Tensor:
    """Where the kernels of `cuda` run, at the end of its memory."""
    return guarded(torch.from_numpy(np.ascontiguousarray(values)).to(device_of(cuda)))


def run(ops: CudaOps, op: Any, *, times: int = 1) -> Tensor:
    """What the op writes in a pass over all rows of its output, at position 0."""
    n = len(op.out)
    program, state = ops.program(n), StepState(n)
    program.append(op)
    state.set([3] * n, 0)
    for _ in range(times):
        assert program.run(state)
    ops.wait()
    out: Tensor = op.out.clone()
    return out


def expected(op: Any) -> Tensor:
    """What torch makes of it at float32, with the weights that the device has."""
    twin, state = _twin(op), StepState(len(op.out))
    state.set([3] * len(op.out), 0)
    reference.run(twin, state)
    out: Tensor = twin.out
    return out


def exact_weights(matrix: CudaMatrix) -> Tensor:
    """float32 (n_out, n_in), decoded without rounding."""
    shape, device = (matrix.n_out, matrix.n_in), matrix.weights.device
    if matrix.format == "mxfp4":  # bfloat16 holds a code times a power of two
        decoded = torch.empty(shape, dtype=torch.bfloat16, device=device)
        cuda_weights.rows(matrix, 0, matrix.n_out, decoded)
        return decoded.float()
    values = torch.empty(shape, device=device)
    cuda_weights.gather(matrix, torch.arange(matrix.n_out, device=device), values)
    return values


def _twin(value: Any) -> Any:
    """The same op on the CPU."""
    if isinstance(value, CudaMatrix):
        return TorchMatrix(exact_weights(value).cpu(), "float32")
    if isinstance(value, Tensor):
        return value.clone().cpu()
    if isinstance(value, list | tuple):
        return [_twin(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: _twin(getattr(value, each.name)) for each in fields(value)}
        )
    return value


def error_of(actual: Tensor, right: Tensor) -> float:
    return float((actual.cpu() - right).norm() / right.norm())
