"""The parts of ops that few families have, on CUDA: the kernels on the emulator against the twins
in torch, in a step and in a chunk of a prompt.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.device.arguments import AddNorm, Embed, Linear, NormLinear
from tests.support.cuda_module import cuda
from tests.support.cuda_twins import error_of, expected, ops_of, placed_at, run

__all__ = ["cuda"]

pytestmark = pytest.mark.timeout(600)

DIM, N_OUT, EPS = 72, 40, 1e-5
# Rows, and how exact they are: those of a prompt are bfloat16.
PASSES = [(3, 2e-5), (20, 1e-2)]
Place = Callable[..., Tensor]


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


@pytest.fixture
def place(cuda: ModuleType) -> Place:
    """A random array, where the kernels run."""
    return lambda *shape, seed=0: placed_at(cuda, random(*shape, seed=seed))


@pytest.mark.parametrize(("n_rows", "tolerance"), PASSES)
@pytest.mark.parametrize(
    "end",
    [
        {"gated": True, "activation": "gelu"},
        {"gated": True, "activation": "gelu_tanh"},
        {"gated": True, "activation": "clamped"},
        {"activation": "gelu", "scale": 0.5},
        {"activation": "gelu_tanh"},
        {"activation": "relu2"},
        {"softcap": 1.5},
        {"scale": 0.25, "softcap": 0.7},
        {"norm": None, "scale": 0.125},
    ],
    ids=str,
)
def test_ends_of_a_product(
    cuda: ModuleType, place: Place, end: dict[str, Any], n_rows: int, tolerance: float
) -> None:
    ops = ops_of(cuda)
    is_gated = end.get("gated", False)
    parts = [random(N_OUT, DIM, seed=i) / 4 for i in range(1 + is_gated)]
    op = NormLinear(
        **{
            "residual": place(n_rows, DIM),
            "norm": place(DIM, seed=1),
            "eps": EPS,
            "matrix": ops.matrix(parts, "bfloat16", gated=is_gated),
            "bias": place(N_OUT * (1 + is_gated), seed=2),
            "out": place(n_rows, N_OUT),
            **end,
        }
    )
    right = expected(op)
    out = run(ops, op)
    if op.function and n_rows > 16:  # only `linear` reads it, as bfloat16
        out = op.out.view(-1).view(torch.bfloat16)[: out.numel()].view(out.shape).float()
    assert error_of(out, right) < tolerance


@pytest.mark.parametrize(("n_rows", "tolerance"), PASSES)
def test_a_scaled_product_is_added(
    cuda: ModuleType, place: Place, n_rows: int, tolerance: float
) -> None:
    ops = ops_of(cuda)
    x = place(n_rows, DIM)
    op = Linear(
        x=x,
        matrix=ops.matrix([random(N_OUT, DIM, seed=3)], "bfloat16"),
        bias=place(N_OUT, seed=2),
        residual=place(n_rows, N_OUT, seed=4),
        scale=0.22,
        out=place(n_rows, N_OUT),
    )
    right = expected(op)
    if n_rows > 16:
        x.view(-1).view(torch.bfloat16)[: x.numel()] = x.bfloat16().view(-1)
    assert error_of(run(ops, op), right) < tolerance


@pytest.mark.parametrize("n_rows", [2, 20])
def test_a_scaled_embedding(cuda: ModuleType, place: Place, n_rows: int) -> None:
    ops = ops_of(cuda)
    table = ops.matrix([random(9, DIM)], "bfloat16")
    op = Embed(table=table, scale=3.5, out=place(n_rows, DIM))
    assert error_of(run(ops, op), expected(op)) < 1e-6


@pytest.mark.parametrize("n_rows", [1, 20])
@pytest.mark.parametrize("width", [DIM, DIM // 3])
@pytest.mark.parametrize("target", ["own", "x", "residual"])
def test_a_norm_behind_a_product(
    cuda: ModuleType, place: Place, target: str, width: int, n_rows: int
) -> None:
    ops = ops_of(cuda)
    arrays = {"x": place(n_rows, DIM), "residual": place(n_rows, DIM, seed=1)}
    op = AddNorm(
        **arrays,
        norm=place(width, seed=2),
        eps=EPS,
        scale=0.6,
        factor=place(1, seed=3) if width == DIM else None,
        out=arrays.get(target, place(n_rows, DIM, seed=4)),
    )
    right = expected(op)
    assert error_of(run(ops, op), right) < 1e-6
