"""The parts of ops that few families have: native code against the twins in torch, in every
instruction set.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers.activations import XIELUActivation

from engine.checkpoint.activation import Xielu
from engine.device.arguments import (
    AddNorm,
    Attention,
    Embed,
    Heads,
    LookUp,
    NormLinear,
    Op,
    Times,
)
from engine.device.cpu.ops import CpuOps
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps

N_ROWS, POS, DIM, LENGTH = 19, 5, 36, 40
EPS = 1e-5
Wrap = Callable[[Any], Any]


def random(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def _tensor(array: npt.NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(array.copy())


def compare(make: Callable[[Any, Wrap], Op], *, tolerance: float, out: str = "out") -> None:
    """Runs an op that `make` builds from ops and arrays, in native code and in torch."""
    results = []
    for ops in (CpuOps("float32"), TorchOps("cpu", "float32")):
        is_torch = isinstance(ops, TorchOps)
        op = make(ops, _tensor if is_torch else np.copy)
        program, state = ops.program(N_ROWS), StepState(N_ROWS)
        program.append(op)
        state.set([3] * N_ROWS, POS)
        assert program.run(state)
        results.append(np.asarray(getattr(op, out)))
    assert np.isfinite(results[0]).all()
    np.testing.assert_allclose(results[0], results[1], rtol=0, atol=tolerance)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dim", [36, 7, 100])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("centered", [False, True])
def test_norms(dim: int, centered: bool, has_bias: bool) -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        return NormLinear(
            residual=wrap(random(N_ROWS, dim) + 3),
            norm=wrap(random(dim, seed=1)),
            norm_bias=wrap(random(dim, seed=2)) if has_bias else None,
            centered=centered,
            eps=EPS,
            matrix=ops.matrix([random(20, dim, seed=3)], "float32"),
            out=wrap(np.zeros((N_ROWS, 20), np.float32)),
        )

    compare(make, tolerance=2e-4)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(
    ("gated", "activation"),
    [(True, "gelu"), (True, "gelu_tanh"), (False, "gelu"), (False, "gelu_tanh"), (False, "relu2")],
)
def test_activations(gated: bool, activation: Any) -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        parts = [random(24, DIM, seed=seed) for seed in ((4, 5) if gated else (4,))]
        return NormLinear(
            residual=wrap(random(N_ROWS, DIM)),
            norm=None,
            eps=EPS,
            matrix=ops.matrix(parts, "float32", gated=gated),
            gated=gated,
            activation=activation,
            out=wrap(np.zeros((N_ROWS, 24), np.float32)),
        )

    compare(make, tolerance=1e-4)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("curve", [Xielu(0.8, 0.3, 0.5, -1e-6), Xielu(-2.0, 4.0, 0.25, -0.125)])
def test_a_learned_activation_is_that_of_transformers(curve: Xielu) -> None:
    """Also where it bends and far from 0."""
    make: Any = XIELUActivation
    oracle = make(beta=curve.beta, eps=curve.eps, dtype=torch.float32)
    with torch.no_grad():
        oracle.alpha_p.fill_(curve.alpha_p)
        oracle.alpha_n.fill_(curve.alpha_n)
        x = torch.tensor([-300.0, -3.0, -0.1, -1e-6, -1e-7, 0.0, 1e-7, 1e-3, 0.7, 40.0])
        expected = oracle(x).numpy()
    for ops in (CpuOps("float32"), TorchOps("cpu", "float32")):
        wrap = _tensor if isinstance(ops, TorchOps) else np.copy
        op = NormLinear(
            residual=wrap(x.numpy()[None]),
            norm=None,
            eps=EPS,
            matrix=ops.matrix([np.eye(len(x), dtype=np.float32)], "float32"),
            activation="xielu",
            xielu=curve,
            out=wrap(np.zeros((1, len(x)), np.float32)),
        )
        program, state = ops.program(1), StepState(1)
        program.append(op)
        state.set([3], POS)
        assert program.run(state)
        np.testing.assert_allclose(np.asarray(op.out)[0], expected, rtol=2e-6, atol=2e-6)


def test_a_learned_activation_needs_its_numbers() -> None:
    ops, array = CpuOps("float32"), np.zeros((1, 4), np.float32)
    matrix = ops.matrix([random(4, 4)], "float32")
    with pytest.raises(ValueError, match="xielu: the activation of this name has numbers"):
        NormLinear(residual=array, norm=None, eps=EPS, matrix=matrix, activation="xielu", out=array)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize(("scale", "softcap"), [(0.25, 0.0), (1.0, 3.0), (0.25, 3.0)])
def test_scaled_and_capped_products(scale: float, softcap: float) -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        return NormLinear(
            residual=wrap(random(N_ROWS, DIM)),
            norm=wrap(random(DIM, seed=1)),
            eps=EPS,
            matrix=ops.matrix([random(20, DIM, seed=3)], "float32"),
            scale=scale,
            softcap=softcap,
            out=wrap(np.zeros((N_ROWS, 20), np.float32)),
        )

    compare(make, tolerance=5e-5)


def test_no_number_is_capped() -> None:
    """A NaN must not become a number: the sampler would take it for one."""
    ops = CpuOps("float32")
    residual, out = random(1, DIM), np.zeros((1, 20), np.float32)
    residual[0, 3] = np.nan
    matrix = ops.matrix([random(20, DIM)], "float32")
    op = NormLinear(residual=residual, norm=None, eps=EPS, matrix=matrix, softcap=2.0, out=out)
    program, state = ops.program(1), StepState(1)
    program.append(op)
    state.set([0], 0)
    program.run(state)
    assert np.isnan(out).all()


def test_an_embedding_with_a_scale_and_positions() -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        return Embed(
            table=ops.matrix([random(20, DIM, seed=3)], "float32"),
            scale=6.0,
            positions=wrap(random(LENGTH * DIM, seed=4)),
            out=wrap(np.zeros((N_ROWS, DIM), np.float32)),
        )

    compare(make, tolerance=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.22])
def test_a_norm_of_what_is_added(scale: float) -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        return AddNorm(
            x=wrap(random(N_ROWS, DIM)),
            norm=wrap(random(DIM, seed=1)),
            eps=EPS,
            residual=wrap(random(N_ROWS, DIM, seed=2)),
            scale=scale,
            out=wrap(np.zeros((N_ROWS, DIM), np.float32)),
        )

    compare(make, tolerance=1e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("over_all", [False, True])
def test_queries_and_keys_before_attention(over_all: bool, centered: bool, rotates: bool) -> None:
    n_heads, n_kv_heads, head_dim, half = 4, 2, 12, 4

    def make(ops: Any, wrap: Wrap) -> Op:
        return Heads(
            qkv=wrap(random(N_ROWS, (n_heads + 2 * n_kv_heads) * head_dim)),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            q_norm=wrap(random(n_heads * head_dim, seed=1)),
            k_norm=wrap(random(n_kv_heads * head_dim, seed=2)),
            eps=EPS,
            over_all=over_all,
            centered=centered,
            cos=wrap(random(LENGTH, half, seed=3)) if rotates else None,
            sin=wrap(random(LENGTH, half, seed=4)) if rotates else None,
            q_scales=wrap(random(LENGTH, seed=5)),
        )

    compare(make, tolerance=1e-4, out="qkv")


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("window", [0, 7])
def test_capped_scores(window: int) -> None:
    n_heads, n_kv_heads, head_dim = 4, 2, 12

    def make(ops: Any, wrap: Wrap) -> Op:
        (keys,), (values,), _ = ops.kv_memory([(n_kv_heads, LENGTH, head_dim)])
        empty = np.zeros((LENGTH, 0), np.float32)
        return Attention(
            qkv=wrap(3 * random(N_ROWS, (n_heads + 2 * n_kv_heads) * head_dim)),
            k_cache=keys,
            v_cache=values,
            n_heads=n_heads,
            eps=EPS,
            cos=wrap(empty),
            sin=wrap(empty),
            window=window,
            scale=0.5,
            softcap=2.0,
            out=wrap(np.zeros((N_ROWS, n_heads * head_dim), np.float32)),
        )

    compare(make, tolerance=1e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("window", [0, 7])
def test_sinks(window: int, softcap: float) -> None:
    n_heads, n_kv_heads, head_dim = 4, 2, 12

    def make(ops: Any, wrap: Wrap) -> Op:
        (keys,), (values,), _ = ops.kv_memory([(n_kv_heads, LENGTH, head_dim)])
        empty = np.zeros((LENGTH, 0), np.float32)
        return Attention(
            qkv=wrap(random(N_ROWS, (n_heads + 2 * n_kv_heads) * head_dim)),
            k_cache=keys,
            v_cache=values,
            n_heads=n_heads,
            eps=EPS,
            cos=wrap(empty),
            sin=wrap(empty),
            window=window,
            scale=0.5,
            softcap=softcap,
            sinks=wrap(3 * random(n_heads, seed=1)),
            out=wrap(np.zeros((N_ROWS, n_heads * head_dim), np.float32)),
        )

    compare(make, tolerance=1e-5)


@pytest.mark.usefixtures("isa")
def test_a_norm_of_values_alone() -> None:
    n_heads, n_kv_heads, head_dim = 4, 2, 12

    def make(ops: Any, wrap: Wrap) -> Op:
        return Heads(
            qkv=wrap(random(N_ROWS, (n_heads + 2 * n_kv_heads) * head_dim)),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            v_norm=wrap(random(n_kv_heads * head_dim, seed=1)),
            eps=EPS,
        )

    compare(make, tolerance=1e-5, out="qkv")


@pytest.mark.usefixtures("isa")
def test_what_is_added_has_a_factor() -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        return AddNorm(
            x=wrap(random(N_ROWS, DIM)),
            norm=wrap(random(DIM, seed=1)),
            eps=EPS,
            residual=wrap(random(N_ROWS, DIM, seed=2)),
            factor=wrap(np.array([0.3], np.float32)),
            out=wrap(np.zeros((N_ROWS, DIM), np.float32)),
        )

    compare(make, tolerance=1e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("n_parts", [1, 3])
def test_parts_of_a_row_are_normed_by_themselves(n_parts: int, has_residual: bool) -> None:
    """In place, too."""

    def make(ops: Any, wrap: Wrap) -> Op:
        x = wrap(random(N_ROWS, n_parts * DIM))
        return AddNorm(
            x=x,
            norm=wrap(random(DIM, seed=1)),
            eps=EPS,
            residual=wrap(random(N_ROWS, n_parts * DIM, seed=2)) if has_residual else None,
            scale=0.7,
            out=x,
        )

    compare(make, tolerance=1e-5)


@pytest.mark.parametrize("begin", [0, 5, 20])
def test_a_product_of_numbers_in_their_places(begin: int) -> None:
    def make(ops: Any, wrap: Wrap) -> Op:
        others = wrap(random(N_ROWS, DIM + 20, seed=1))
        return Times(x=wrap(random(N_ROWS, DIM)), others=others, begin=begin)

    compare(make, tolerance=0, out="x")


class Table:
    """Rows in memory; it notes what was asked for."""

    n_in = DIM

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def read(self, indices: Iterable[int], /) -> npt.NDArray[np.float32]:
        self.asked.append(list(indices))
        return random(20, DIM, seed=3)[self.asked[-1]]


def test_rows_of_a_table_in_a_file() -> None:
    """No more of them are read than the pass has rows."""
    table = Table()

    def make(ops: Any, wrap: Wrap) -> Op:
        return LookUp(table=table, scale=6.0, out=wrap(np.zeros((N_ROWS, DIM), np.float32)))

    compare(make, tolerance=0)
    assert [each for asked in table.asked for each in asked] == 2 * N_ROWS * [3]


def test_impossible_arguments_are_refused() -> None:
    ops = CpuOps("float32")
    x, out = random(1, DIM), np.zeros((1, 20), np.float32)
    arrays: dict[str, Any] = {
        "residual": x, "norm": None, "eps": EPS, "out": out,
        "matrix": ops.matrix([random(20, DIM)], "float32"),
    }  # fmt: skip
    with pytest.raises(ValueError, match="a gated product has none"):
        NormLinear(**arrays, gated=True, softcap=2.0)
    with pytest.raises(ValueError, match="a product with an activation has none"):
        NormLinear(**arrays, activation="gelu", softcap=2.0)
    arrays["out"] = out[:, :10].copy()
    op = NormLinear(**arrays, gated=True, activation="relu2")
    with pytest.raises(ValueError, match="no kernel for relu2, gated: True"):
        ops.program(1).append(op)
    with pytest.raises(ValueError, match="norm: 7 numbers for rows of 36"):
        ops.program(1).append(AddNorm(x=x, norm=random(7), eps=EPS, residual=None, out=x))
    with pytest.raises(ValueError, match="begin: 1; there are 36 of 36 columns"):
        ops.program(1).append(Times(x=x, others=x.copy(), begin=1))
