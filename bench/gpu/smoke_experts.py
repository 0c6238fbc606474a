"""A mixture of experts at the sizes of a model of 30B, against float64.

Owns how the exact result comes about; smoke.py says how close it must be.
"""

from types import ModuleType

import torch
from torch import Tensor

from engine.checkpoint.config import ExpertsConfig
from engine.device.arguments import Expert, Experts
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.weights import CudaMatrix
from engine.device.routing_reference import choose

from .place import DEVICE, IS_REHEARSAL

DIM, HIDDEN, N = (64, 48, 8) if IS_REHEARSAL else (2048, 768, 128)
ROWS = 8
# So many of the experts differ: to make all of them would take long.
_DIFFERENT = 8
_EPS = 1e-5


def experts_op(kernels: ModuleType, format_: str) -> Experts[Tensor, CudaMatrix]:
    def matrices(n_parts: int, n_out: int, n_in: int) -> tuple[CudaMatrix, ...]:
        made = [
            cuda_weights.pack(
                [torch.randn(n_out, n_in, device=DEVICE) * n_in**-0.5 for _ in range(n_parts)],
                format_,
                kernels,
                gated=n_parts == 2,
            )
            for _ in range(min(_DIFFERENT, N))
        ]
        return tuple(made[i % len(made)] for i in range(N))

    return Experts(
        x=torch.randn(ROWS, DIM, device=DEVICE),
        norm=torch.rand(DIM, device=DEVICE) + 0.5,
        eps=_EPS,
        router=3 * torch.randn(ROWS, N, device=DEVICE),
        config=ExpertsConfig(n_experts=N, n_used=min(8, N), hidden_dim=HIDDEN, renormalized=True),
        experts=Expert(gate_up=matrices(2, HIDDEN, DIM), down=matrices(1, DIM, HIDDEN)),
        activation="silu",
        residual=None,
        out=torch.full((ROWS, DIM), torch.nan, device=DEVICE),
    )


def exact(op: Experts[Tensor, CudaMatrix]) -> Tensor:
    """The float64 result (rows, dim)."""
    assert op.norm is not None, "made above"
    x = op.x.double()
    x = x / (x.square().mean(-1, keepdim=True) + _EPS).sqrt() * op.norm.double()
    chosen, weights = choose(op.router.double(), op.config, None)
    out = torch.zeros_like(x)
    for row in range(ROWS):
        for expert, weight in zip(chosen[row].tolist(), weights[row], strict=True):
            gate, up = (_exact(op.experts.gate_up[expert]) @ x[row]).chunk(2)
            out[row] += weight * (_exact(op.experts.down[expert]) @ (gate * gate.sigmoid() * up))
    return out


def _exact(matrix: CudaMatrix) -> Tensor:
    values = torch.empty(matrix.n_out, matrix.n_in, device=DEVICE)
    if matrix.format == "mxfp4":  # bfloat16 holds a code times a power of two
        decoded = values.bfloat16()
        cuda_weights.rows(matrix, 0, matrix.n_out, decoded)
        return decoded.double()
    cuda_weights.gather(matrix, torch.arange(matrix.n_out, device=DEVICE), values)
    return values.double()
