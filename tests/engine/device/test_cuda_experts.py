"""Mixtures of experts on CUDA, the kernels on the emulator: against the twin in torch, over what
there may be of routers and experts, and the same bits however the rows come.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.checkpoint.config import ExpertsConfig
from engine.device.arguments import Expert, Experts
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.experts import route
from engine.device.cuda.lacking import MOST_EXPERTS
from engine.device.cuda.ops import CudaOps
from engine.device.routing_reference import choose
from tests.engine.device.test_experts import CONFIGS, DIM, EPS, HIDDEN, N, random
from tests.support.cuda_module import cuda, device_of, set_knobs
from tests.support.cuda_twins import error_of, exact_weights, expected, ops_of, placed_at, run

__all__ = ["cuda", "set_knobs"]

pytestmark = pytest.mark.timeout(600)

MOST = 16
FORMATS = ("bfloat16", "8bit", "4bit", "mxfp4")


def expert(ops: CudaOps, n: int, hidden: int, format_: str, *, bias: bool, seed: int) -> Any:
    place = partial(placed_at, ops.kernels)
    return Expert(
        gate_up=[
            ops.matrix(
                [random(hidden, DIM, seed=seed + i), random(hidden, DIM, seed=seed + 50 + i)],
                format_,
                gated=True,
            )
            for i in range(n)
        ],
        b_gate_up=place(random(n * 2 * hidden, seed=seed)) if bias else None,
        down=[ops.matrix([random(DIM, hidden, seed=seed + i)], format_) for i in range(n)],
        b_down=place(random(n * DIM, seed=seed + 1)) if bias else None,
    )


def experts_op(
    ops: CudaOps,
    name: str,
    n_rows: int,
    *,
    format_: str = "bfloat16",
    activation: Any = "silu",
    rows: slice = slice(None),
) -> Experts[Tensor, Any]:
    config: ExpertsConfig = CONFIGS[name]
    place = partial(placed_at, ops.kernels)
    shared_format = "bfloat16" if format_ == "mxfp4" else format_
    return Experts(
        x=place(random(n_rows, DIM)[rows]),
        norm=place(random(DIM, seed=1)),
        eps=EPS,
        router=place(8 * random(n_rows, config.router_dim, seed=2)[rows]),
        config=config,
        selection_bias=place(random(N, seed=3)) if config.selection_bias else None,
        expert_scales=place(random(N, seed=5)) if config.expert_scales else None,
        experts=expert(ops, N, HIDDEN, format_, bias=config.bias, seed=100),
        shared=expert(ops, 1, 24, shared_format, bias=config.bias, seed=300)
        if name.startswith("shared")
        else None,
        activation=activation,
        residual=place(random(n_rows, DIM, seed=4)[rows]),
        scale=0.5,
        out=place(np.full((n_rows, DIM), np.nan, np.float32)[rows]),
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_computes_what_torch_does(cuda: ModuleType, name: str) -> None:
    ops = ops_of(cuda)
    for n_rows in (1, 6):
        op = experts_op(ops, name, n_rows)
        assert error_of(run(ops, op), expected(op)) < 2e-5, f"{n_rows} rows"


@pytest.mark.parametrize("format_", FORMATS)
def test_weights_of_every_format(cuda: ModuleType, format_: str) -> None:
    ops = ops_of(cuda)
    op = experts_op(ops, "shared gate", 5, format_=format_)
    assert error_of(run(ops, op), expected(op)) < 2e-5


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "clamped"])
def test_activations(cuda: ModuleType, activation: str) -> None:
    ops = ops_of(cuda)
    op = experts_op(ops, "biases", 3, activation=activation)
    op.x.mul_(20)  # far enough for the clamp
    assert error_of(run(ops, op), expected(op)) < 2e-5


def test_without_a_norm_and_into_its_input(cuda: ModuleType) -> None:
    ops = ops_of(cuda)
    op = experts_op(ops, "shared", 3)
    op = replace(op, norm=None, residual=None, out=op.x)
    right = expected(op)
    assert error_of(run(ops, op), right) < 2e-5


@pytest.mark.parametrize("format_", FORMATS)
def test_a_row_is_the_same_alone_and_among_others(
    cuda: ModuleType,
    set_knobs: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
) -> None:
    """Bit for bit, in any order of threads and launches, and as a graph."""
    ops = ops_of(cuda)
    whole = run(ops, experts_op(ops, "groups", MOST, format_=format_))
    for row in (0, 7):
        alone = experts_op(ops, "groups", MOST, format_=format_, rows=slice(row, row + 1))
        assert torch.equal(run(ops, alone, times=2), whole[row : row + 1])
    monkeypatch.setenv("SOLITON_CUDA_EMULATOR_SEED", "2")
    set_knobs(overlap=False)
    some = experts_op(ops, "groups", MOST, format_=format_, rows=slice(0, 5))
    assert torch.equal(run(ops, some), whole[:5])


def test_many_rows_of_one_expert(cuda: ModuleType) -> None:
    """More than one group takes."""
    ops = ops_of(cuda)
    op = experts_op(ops, "renormalized", 11)
    op.router[:, 4] = 50.0
    op.router[:7, 2] = 40.0
    assert error_of(run(ops, op), expected(op)) < 2e-5


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ["shared gate", "biases"])
def test_a_chunk_of_a_prompt(cuda: ModuleType, name: str, format_: str) -> None:
    ops = ops_of(cuda)
    op = experts_op(ops, name, 40, format_=format_, activation="clamped")
    # x and what lies between the products are bfloat16.
    assert error_of(run(ops, op), expected(op)) < 1e-2


@pytest.mark.parametrize("name", CONFIGS)
def test_many_rows_choose_as_the_definition_says(cuda: ModuleType, name: str) -> None:
    ops, config = ops_of(cuda), CONFIGS[name]
    op = experts_op(ops, name, 40)
    chosen, weights = route(op, ops.lane, 40)
    bias = None if op.selection_bias is None else op.selection_bias.cpu()
    right, right_weights = choose(op.router[:, :N].cpu(), config, bias)
    assert torch.equal(chosen.cpu().long(), right)
    if op.expert_scales is not None:
        right_weights = right_weights * op.expert_scales.cpu()[right]
    torch.testing.assert_close(weights.cpu(), right_weights, rtol=1e-5, atol=1e-6)


def test_equally_good_experts_are_taken_in_their_order(cuda: ModuleType) -> None:
    ops = ops_of(cuda)
    op, other = (experts_op(ops, "renormalized", 1) for _ in range(2))
    op.router[:] = 1.0
    other.router[:] = torch.where(torch.arange(N) < 4, 1.0, -50.0)
    assert torch.equal(run(ops, op), run(ops, other))


def test_a_router_without_numbers_gives_none(cuda: ModuleType) -> None:
    """NaN must reach the logits, and no expert beyond the last is read."""
    ops = ops_of(cuda)
    for name in CONFIGS:
        op = experts_op(ops, name, 2)
        op.router[0] = torch.nan
        out = run(ops, op)
        assert out[0].isnan().all(), name
        assert out[1].isfinite().all(), name


def test_blocks_of_mxfp4_are_kept_exactly(cuda: ModuleType) -> None:
    generator = torch.Generator().manual_seed(1)
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = sizes[torch.randint(0, 8, (24, 5, 32), generator=generator)]
    signs = torch.randint(0, 2, codes.shape, generator=generator) * 2 - 1
    scales = torch.randint(-20, 21, (24, 5, 1), generator=generator)
    codes[3] = codes[3].clamp(max=0.5)  # blocks without large codes
    values = torch.ldexp(codes * signs, scales).flatten(1)
    matrix = cuda_weights.pack([values.to(device_of(cuda))], "mxfp4", cuda)
    assert torch.equal(exact_weights(matrix).cpu(), values)
    assert matrix.n_bytes == cuda_weights.matrix_bytes("mxfp4", 24, 160)


def test_groups_of_mxfp4_of_very_different_sizes(cuda: ModuleType) -> None:
    ops = ops_of(cuda)
    op = experts_op(ops, "softmax", 2)
    parts = [torch.from_numpy(random(HIDDEN, DIM, seed=i)) for i in range(2)]
    for part in parts:
        part[::2, : DIM // 2] *= 2.0**-18
        part[1::2, DIM // 2 :] *= 2.0**13
    matrices = [
        cuda_weights.pack([each.to(device_of(cuda)) for each in parts], "mxfp4", cuda, gated=True)
    ] * N
    op = replace(op, experts=replace(op.experts, gate_up=matrices))
    assert error_of(run(ops, op), expected(op)) < 2e-5


def test_what_no_kernel_takes_is_refused(cuda: ModuleType) -> None:
    assert MOST_EXPERTS == cuda.MAX_USED_EXPERTS == cuda.MAX_EXPERT_GROUPS
    ops = ops_of(cuda)
    op = experts_op(ops, "softmax", 1, activation="relu2")
    with pytest.raises(ValueError, match="no CUDA kernel computes it"):
        ops.program(1).append(op)
    many = replace(CONFIGS["softmax"], n_experts=40, n_used=33)
    forty: Expert[Tensor, Any] = Expert(
        gate_up=[op.experts.gate_up[0]] * 40, down=[op.experts.down[0]] * 40
    )
    op = replace(
        op,
        activation="silu",
        config=many,
        experts=forty,
        router=placed_at(cuda, np.zeros((1, 40), np.float32)),
    )
    with pytest.raises(ValueError, match="n_used: the CUDA kernels take at most 32, not 33"):
        ops.program(1).append(op)
