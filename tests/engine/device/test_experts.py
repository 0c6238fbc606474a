"""Mixtures of experts as an op: native code against the twin in torch, over what there may be of
routers and experts, and the same bits however the rows come.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.checkpoint.config import ExpertsConfig
from engine.device.arguments import Expert, Experts
from engine.device.cpu.ops import CpuOps
from engine.device.routing_reference import choose
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.native.cpu import kernels

DIM, HIDDEN, N, MOST = 64, 40, 12, 48
EPS = 1e-5
Floats = npt.NDArray[np.float32]

CONFIGS = {
    "softmax": ExpertsConfig(n_experts=N, n_used=3, hidden_dim=HIDDEN),
    "renormalized": ExpertsConfig(
        n_experts=N, n_used=4, hidden_dim=HIDDEN, renormalized=True, scale=2.5
    ),
    "chosen": ExpertsConfig(n_experts=N, n_used=4, hidden_dim=HIDDEN, scoring="chosen_softmax"),
    "groups": ExpertsConfig(
        n_experts=N,
        n_used=3,
        hidden_dim=HIDDEN,
        scoring="sigmoid",
        selection_bias=True,
        n_groups=4,
        n_groups_used=2,
        group_best=2,
        renormalized=True,
    ),
    "biases": ExpertsConfig(n_experts=N, n_used=2, hidden_dim=HIDDEN, bias=True),
    "shared": ExpertsConfig(n_experts=N, n_used=2, hidden_dim=HIDDEN),
    "shared gate": ExpertsConfig(n_experts=N, n_used=2, hidden_dim=HIDDEN, shared_gate=True),
    "scales": ExpertsConfig(
        n_experts=N, n_used=3, hidden_dim=HIDDEN, renormalized=True, expert_scales=True
    ),
    "scales of chosen": ExpertsConfig(
        n_experts=N, n_used=3, hidden_dim=HIDDEN, scoring="chosen_softmax", expert_scales=True
    ),
    "sparse mixer": ExpertsConfig(
        n_experts=N, n_used=2, hidden_dim=HIDDEN, scoring="sparse_mixer", spread=0.6
    ),
    "all": ExpertsConfig(n_experts=N, n_used=N, hidden_dim=HIDDEN),
}


def random(*shape: int, seed: int = 0) -> Floats:
    values = np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)
    return values / np.float32(shape[-1] ** 0.5) if len(shape) == 2 else values


def expert(
    ops: Any, n: int, hidden: int, formats: Any, *, bias: bool, seed: int, gated: bool
) -> Any:
    wrap = _wrap(ops)
    gate_up, down = formats
    starts = (0, 50) if gated else (50,)
    return Expert(
        gate_up=[
            ops.matrix(
                [random(hidden, DIM, seed=seed + start + i) for start in starts],
                gate_up,
                gated=gated,
            )
            for i in range(n)
        ],
        b_gate_up=wrap(random(n * len(starts) * hidden, seed=seed)) if bias else None,
        down=[ops.matrix([random(DIM, hidden, seed=seed + i)], down) for i in range(n)],
        b_down=wrap(random(n * DIM, seed=seed + 1)) if bias else None,
    )


def experts_op(
    ops: Any,
    name: str,
    n_rows: int,
    *,
    formats: Any = ("float32", "float32"),
    activation: Any = "silu",
    rows: slice = slice(None),
    gated: bool = True,
) -> Any:
    config, wrap = CONFIGS[name], _wrap(ops)
    has_shared = name.startswith("shared")
    return Experts(
        x=wrap(random(n_rows, DIM)[rows]),
        norm=wrap(random(DIM, seed=1)),
        eps=EPS,
        router=wrap(8 * random(n_rows, config.router_dim, seed=2)[rows]),
        config=config,
        selection_bias=wrap(random(N, seed=3)) if config.selection_bias else None,
        expert_scales=wrap(random(N, seed=5)) if config.expert_scales else None,
        experts=expert(ops, N, HIDDEN, formats, bias=config.bias, seed=100, gated=gated),
        shared=(
            expert(ops, 1, 24, formats, bias=config.bias, seed=300, gated=gated)
            if has_shared
            else None
        ),
        activation=activation,
        residual=wrap(random(n_rows, DIM, seed=4)[rows]),
        scale=0.5,
        out=wrap(np.zeros((n_rows, DIM), np.float32)[rows]),
    )


def run(ops: Any, op: Any) -> Floats:
    n_rows = len(op.x)
    program, state = ops.program(n_rows), StepState(n_rows)
    program.append(op)
    state.set([0] * n_rows, 0)
    assert program.run(state)
    return np.asarray(op.out).copy()


def _wrap(ops: Any) -> Any:
    return torch.from_numpy if isinstance(ops, TorchOps) else np.ascontiguousarray


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    kernels.set_threads(1)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("n_rows", [1, 5, MOST])
@pytest.mark.parametrize("name", CONFIGS)
def test_native_code_computes_what_torch_does(name: str, n_rows: int) -> None:
    ops = CpuOps("float32", n_threads=2)
    ours = run(ops, experts_op(ops, name, n_rows))
    twin = TorchOps("cpu", "float32")
    np.testing.assert_allclose(ours, run(twin, experts_op(twin, name, n_rows)), rtol=0, atol=2e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "clamped"])
def test_activations(activation: str) -> None:
    ops, twin = CpuOps("float32", n_threads=1), TorchOps("cpu", "float32")
    ours, expected = (
        run(each, experts_op(each, "biases", 7, activation=activation)) for each in (ops, twin)
    )
    np.testing.assert_allclose(ours, expected, rtol=0, atol=5e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("n_rows", [1, 7, MOST])
@pytest.mark.parametrize("name", ["shared", "biases", "groups"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu2"])
def test_experts_without_gates(activation: str, name: str, n_rows: int) -> None:
    ops, twin = CpuOps("float32", n_threads=2), TorchOps("cpu", "float32")
    ours, expected = (
        run(each, experts_op(each, name, n_rows, activation=activation, gated=False))
        for each in (ops, twin)
    )
    np.testing.assert_allclose(ours, expected, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    ("formats", "gated"),
    [
        (("float32", "float32"), True),
        (("bfloat16", "4bit"), True),
        (("8bit", "6bit"), True),
        ((("4bit", "8bit"), "5bit"), True),
        ((("float32", "4bit"), "bfloat16"), True),
        (("bfloat16", "8bit"), False),
        (("5bit", "float32"), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["shared gate", "groups"])
def test_a_row_is_the_same_alone_and_among_others(name: str, formats: Any, gated: bool) -> None:
    """Bit for bit, with any number of threads; and close to what is not quantised."""
    ops = CpuOps("float32", n_threads=1)
    activation = "silu" if gated else "relu2"

    def result(formats: Any, rows: slice = slice(None)) -> Floats:
        op = experts_op(
            ops, name, MOST, formats=formats, activation=activation, rows=rows, gated=gated
        )
        return run(ops, op)

    expected = np.concatenate([result(formats, slice(i, i + 1)) for i in range(MOST)])
    for n_threads in (1, 2, 3):
        kernels.set_threads(n_threads)
        assert np.array_equal(result(formats, slice(0, 9)), expected[:9])
        assert np.array_equal(result(formats), expected)
    exact = result(("float32", "float32"))
    assert np.corrcoef(expected.ravel(), exact.ravel())[0, 1] > 0.99


def test_equally_good_experts_are_taken_in_their_order() -> None:
    ops = CpuOps("float32", n_threads=1)
    op, other = (experts_op(ops, "renormalized", 1) for _ in range(2))
    op.router[:] = 1.0
    other.router[:] = np.where(np.arange(N) < 4, 1.0, -50.0)
    assert np.array_equal(run(ops, op), run(ops, other))


def test_a_router_without_numbers_gives_none() -> None:
    """NaN must reach the logits, and no expert beyond the last is read."""
    ops = CpuOps("float32", n_threads=1)
    for name in CONFIGS:
        op = experts_op(ops, name, 2)
        op.router[0] = np.nan
        out = run(ops, op)
        assert np.isnan(out[0]).all(), name
        assert np.isfinite(out[1]).all(), name


def test_the_choice_of_groups_is_that_of_the_definition() -> None:
    """By hand: groups (0, 1), (2, 3); the better one has the larger sum, not the best expert."""
    config = ExpertsConfig(
        n_experts=4, n_used=2, hidden_dim=16, scoring="sigmoid", n_groups=2, group_best=2
    )
    numbers = torch.tensor([[3.0, -3.0, 1.0, 2.0]])
    chosen, weights = choose(numbers, config, None)
    assert chosen.tolist() == [[3, 2]]
    np.testing.assert_allclose(weights[0], torch.sigmoid(torch.tensor([2.0, 1.0])), rtol=1e-6)


def test_sparse_mixer_weighs_each_expert_among_those_close_to_it() -> None:
    """By hand: 2.0 is close to 1.5, which is close to 1.2; 0.1 and -3 are close to none."""
    config = ExpertsConfig(n_experts=5, n_used=2, hidden_dim=16, scoring="sparse_mixer", spread=0.3)
    numbers = torch.tensor([[1.2, -3.0, 2.0, 0.1, 1.5]])
    chosen, weights = choose(numbers, config, None)
    assert chosen.tolist() == [[2, 4]]
    first, second = 1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(-0.3))
    np.testing.assert_allclose(weights[0], [first, second], rtol=1e-6)


def test_impossible_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="n_used: 5 of 4 experts"):
        ExpertsConfig(n_experts=4, n_used=5, hidden_dim=16)
    with pytest.raises(ValueError, match="n_groups: 1 of 3 equal groups"):
        ExpertsConfig(n_experts=4, n_used=2, hidden_dim=16, n_groups=3)
    with pytest.raises(ValueError, match="too few experts for 3"):
        ExpertsConfig(n_experts=4, n_used=3, hidden_dim=16, n_groups=2)
    ops = CpuOps("float32", n_threads=1)
    op = experts_op(ops, "softmax", 1, activation="relu2")
    with pytest.raises(ValueError, match="no kernel for relu2 in experts"):
        ops.program(1).append(op)
    plain = experts_op(ops, "shared", 1, gated=False).shared
    with pytest.raises(ValueError, match="shared: it must have gates where experts have them"):
        dataclasses.replace(op, shared=plain)
    one = op.experts.down[:1]
    with pytest.raises(ValueError, match="down: 1 matrices for 12 experts"):
        Experts(
            x=op.x,
            norm=None,
            eps=EPS,
            router=op.router,
            config=op.config,
            experts=Expert(gate_up=op.experts.gate_up, down=one),
            activation="silu",
            residual=None,
            out=op.out,
        )
