"""Recurrent layers, Mamba 2 and gates as ops: native code against transformers and the
twin in torch, and the same bits however the rows come.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.cache.states import RecurrentStates
from engine.checkpoint.recurrent import DeltaNetConfig, Mamba2Config, Scales, ShortConvConfig
from engine.device.arguments import DeltaNet, Gate, GatedNorm, Mamba2, ShortConv
from engine.device.cpu.ops import CpuOps
from engine.device.ops import OpTime
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.native.cpu import kernels

Floats = npt.NDArray[np.float32]
MOST = 75
EPS = 1e-6
CONFIGS: dict[str, Any] = {
    "grouped": DeltaNetConfig(n_k_heads=2, n_v_heads=6, k_dim=32, v_dim=48, kernel=4),
    "alike": DeltaNetConfig(n_k_heads=3, n_v_heads=3, k_dim=16, v_dim=16, kernel=2),
    "turns": DeltaNetConfig(
        n_k_heads=2, n_v_heads=6, k_dim=16, v_dim=32, kernel=4, takes_turns=True, has_rates=True
    ),
    "conv": ShortConvConfig(dim=200, kernel=3),
    "conv-bias": ShortConvConfig(dim=40, kernel=4, bias=True),
    "mamba": Mamba2Config(
        n_heads=10, n_groups=2, head_dim=48, state_dim=18, kernel=4, conv_bias=True
    ),
    "mamba-limits": Mamba2Config(
        n_heads=4,
        n_groups=1,
        head_dim=16,
        state_dim=32,
        kernel=2,
        dt_limits=(0.2, 0.9),
        has_rates=True,
        scales=Scales(x=0.7, b=1.3, c=0.8, dt=1.6),
    ),
}


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


class Layer:
    """One recurrent layer with its states."""

    def __init__(self, ops: Any, name: str) -> None:
        wrap = torch.from_numpy if isinstance(ops, TorchOps) else np.ascontiguousarray
        self.config = config = CONFIGS[name]
        self.states = RecurrentStates([config.state_shape], ops)
        self.length = 0
        self._x = wrap(np.zeros((MOST, config.in_dim), np.float32))
        self._out = wrap(np.zeros((MOST, config.out_dim), np.float32))
        self._program = ops.program(MOST)
        self._state = StepState(MOST)
        shared: Any = {"x": self._x, "states": self.states.layers[0], "out": self._out}
        if isinstance(config, DeltaNetConfig):
            rates = -np.exp(random(config.n_v_heads, seed=2))
            op: Any = DeltaNet(
                config=config,
                conv=wrap(random(config.conv_dim * config.kernel, seed=1)),
                a_log=wrap(rates if config.has_rates else np.log(-rates)),
                dt_bias=wrap(random(config.n_v_heads, seed=3)),
                norm=wrap(random(config.v_dim, seed=4)),
                eps=EPS,
                **shared,
            )
        elif isinstance(config, Mamba2Config):
            rates = -np.exp(random(config.n_heads, seed=2))
            op = Mamba2(
                config=config,
                conv=wrap(random(config.conv_dim * config.kernel, seed=1)),
                conv_bias=wrap(random(config.conv_dim, seed=5)) if config.conv_bias else None,
                a_log=wrap(rates if config.has_rates else np.log(-rates)),
                dt_bias=wrap(random(config.n_heads, seed=3)),
                skip=wrap(random(config.n_heads, seed=4)),
                **shared,
            )
        else:
            op = ShortConv(
                conv=wrap(random(config.dim * config.kernel, seed=1)),
                bias=wrap(random(config.dim, seed=2)) if config.bias else None,
                kernel=config.kernel,
                **shared,
            )
        self.op = op
        self._program.append(op)

    def record(self, **weights: Any) -> None:
        """The same op with other weights."""
        self.op = replace(self.op, **weights)
        self._program = native().program(MOST)
        self._program.append(self.op)

    def run(self, rows: Floats) -> Floats:
        """A pass over the next rows."""
        n = len(rows)
        np.asarray(self._x)[:n] = rows
        self._state.set([0] * n, self.length)
        self.states.begin(self.length, n)
        assert self._program.run(self._state)
        self.states.commit()
        self.length += n
        return np.asarray(self._out)[:n].copy()

    def profiled(self) -> OpTime:
        """The op over one row, from no state."""
        self._state.set([0], 0)
        self.states.begin(0, 1)
        (time,) = self._program.profile(self._state)
        found: OpTime = time
        return found

    def go_back(self, length: int) -> None:
        assert self.states.reachable(length) == length
        self.length = length


def native(n_threads: int = 2) -> CpuOps:
    return CpuOps("float32", n_threads=n_threads)


def rows_of(name: str, n: int = MOST) -> Floats:
    return random(n, CONFIGS[name].in_dim, seed=9)


def one_by_one(name: str) -> Floats:
    layer = Layer(native(1), name)
    return np.concatenate([layer.run(row[None]) for row in rows_of(name)])


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    kernels.set_threads(1)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", CONFIGS)
def test_native_code_computes_what_torch_does(name: str) -> None:
    rows = rows_of(name)
    ours, twin = Layer(native(), name), Layer(TorchOps("cpu", "float32"), name)
    for part in (rows[:40], rows[40:41], rows[41:]):
        np.testing.assert_allclose(ours.run(part), twin.run(part), rtol=1e-6, atol=3e-5)


@pytest.mark.parametrize("name", ["grouped", "mamba"])
def test_a_profile_counts_the_state_and_the_weights(name: str) -> None:
    """A state is read and written."""
    layer = Layer(native(), name)
    n_state, _ = layer.config.state_shape
    assert layer.profiled().n_bytes == 4 * (2 * n_state + len(layer.op.conv))


@pytest.mark.parametrize("name", ["grouped", "alike"])
def test_a_delta_net_is_that_of_transformers(name: str) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs

    config, rows, layer = CONFIGS[name], torch.from_numpy(rows_of(name)), Layer(native(), name)
    op, n = layer.op, config.n_v_heads
    ends = (config.conv_dim, config.conv_dim + n, config.conv_dim + 2 * n)
    qkv, b, a, z = rows.tensor_split(ends, dim=1)
    conv, a_log, dt_bias, norm = map(torch.from_numpy, (op.conv, op.a_log, op.dt_bias, op.norm))
    mixed = theirs.causal_conv1d_fn(
        qkv.t()[None], conv.view(config.conv_dim, -1), activation="silu"
    )[0].t()
    key_dim = config.n_k_heads * config.k_dim
    q, k, v = (
        part.reshape(1, MOST, -1, width)
        for part, width in zip(
            mixed.tensor_split((key_dim, 2 * key_dim), dim=1),
            (config.k_dim, config.k_dim, config.v_dim),
            strict=True,
        )
    )
    out, _ = theirs.torch_recurrent_gated_delta_rule(
        q,
        k,
        v,
        g=(-a_log.exp() * torch.nn.functional.softplus(a + dt_bias))[None],
        beta=b.sigmoid()[None],
        use_qk_l2norm_in_kernel=True,
    )
    gated = theirs.Qwen3NextRMSNormGated(config.v_dim, eps=EPS)
    gated.weight.data = norm
    with torch.no_grad():
        expected = gated(out.reshape(-1, config.v_dim), z.reshape(-1, config.v_dim))
    ours = layer.run(rows.numpy())
    np.testing.assert_allclose(ours, expected.view(MOST, -1).numpy(), rtol=0, atol=3e-5)


def test_mamba_2_is_that_of_transformers() -> None:
    """The whole mixer, with the norm and the gate behind the op, in one pass."""
    from transformers import Mamba2Config as TheirConfig
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config, layer = CONFIGS["mamba"], Layer(native(), "mamba")
    theirs = TheirConfig(
        hidden_size=240,
        num_heads=config.n_heads,
        head_dim=config.head_dim,
        state_size=config.state_dim,
        n_groups=config.n_groups,
        conv_kernel=config.kernel,
        chunk_size=32,
        layer_norm_epsilon=EPS,
    )
    mixer, op = Mamba2Mixer(theirs, layer_idx=0).eval(), layer.op
    norm = random(config.out_dim, seed=6)
    assert mixer.conv1d.bias is not None
    with torch.no_grad():
        for parameter, own in (
            (mixer.conv1d.weight, op.conv),
            (mixer.conv1d.bias, op.conv_bias),
            (mixer.A_log, op.a_log),
            (mixer.dt_bias, op.dt_bias),
            (mixer.D, op.skip),
            (mixer.norm.weight, norm),
        ):
            parameter.copy_(torch.from_numpy(own).view(parameter.shape))
        hidden = torch.from_numpy(random(MOST, 240, seed=8))
        rows = mixer.in_proj(hidden).numpy()
        expected = mixer(hidden[None])[0].numpy()
        ours = layer.run(rows)
        normed = gated(native(), ours, rows, norm=norm, n_groups=config.n_groups)
        projected = mixer.out_proj(torch.from_numpy(normed)).numpy()
    np.testing.assert_allclose(projected, expected, rtol=0, atol=5e-5)


def gated(ops: Any, x: Floats, gates: Floats, **options: Any) -> Floats:
    wrap: Any = torch.from_numpy if isinstance(ops, TorchOps) else np.ascontiguousarray
    out = wrap(x.copy())
    options = {key: wrap(each) if key == "norm" else each for key, each in options.items()}
    program, state = ops.program(len(x)), StepState(len(x))
    program.append(GatedNorm(x=out, gate=wrap(gates.copy()), eps=EPS, **options))
    state.set([0] * len(x), 0)
    assert program.run(state)
    return np.asarray(out)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("gate_first", [False, True])
@pytest.mark.parametrize("has_norm", [False, True])
def test_norms_of_groups_with_a_gate(gate_first: bool, has_norm: bool) -> None:
    x, gates, options = random(5, 96), random(5, 130, seed=1), {}
    if has_norm:
        options = {"norm": random(96, seed=2)}
    shared: Any = {"gate_scale": 0.6, "n_groups": 3, "gate_first": gate_first, **options}
    ours = gated(native(), x, gates, **shared)
    np.testing.assert_allclose(
        ours, gated(TorchOps("cpu", "float32"), x, gates, **shared), rtol=0, atol=1e-5
    )
    z = 0.6 * gates[:, :96].astype(np.float64)
    silu = z / (1.0 + np.exp(-z))
    y = x * silu if gate_first or not has_norm else x.astype(np.float64)
    if has_norm:
        groups = y.reshape(5, 3, 32)
        y = (groups / np.sqrt((groups**2).mean(2, keepdims=True) + EPS)).reshape(5, 96)
        y = y * options["norm"] * (1.0 if gate_first else silu)
    np.testing.assert_allclose(ours, y, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_are_the_same_bits_however_they_come(name: str) -> None:
    rows, expected = rows_of(name), one_by_one(name)
    for n_threads in (1, 3):
        for size in (2, 16, 33, MOST):
            layer = Layer(native(n_threads), name)
            parts = [layer.run(rows[i : i + size]) for i in range(0, MOST, size)]
            assert np.array_equal(np.concatenate(parts), expected), size


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", CONFIGS)
def test_every_instruction_set_gives_the_same_bits(name: str) -> None:
    ours = Layer(native(), name).run(rows_of(name))
    kernels.select_isa("baseline")
    assert np.array_equal(Layer(native(), name).run(rows_of(name)), ours)


@pytest.mark.parametrize("ops", ["native", "torch"])
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_taken_back_leave_no_trace(name: str, ops: str) -> None:
    """Random passes, rows taken back and snapshots; every row is what it is in one pass."""
    chosen: Any = native() if ops == "native" else TorchOps("cpu", "float32")
    rows = rows_of(name)
    expected = Layer(chosen, name).run(rows)
    wrong = random(16, rows.shape[1], seed=77)
    choice, layer = np.random.default_rng(5), Layer(chosen, name)
    while layer.length < 64:
        begin, n = layer.length, int(choice.integers(1, 12))
        assert np.array_equal(layer.run(rows[begin : begin + n]), expected[begin : begin + n])
        match int(choice.integers(4)):
            case 0:
                layer.run(wrong[: int(choice.integers(1, 17))])
                layer.go_back(begin + n)
            case 1:
                back = int(choice.integers(0, 4))
                layer.go_back(max(layer.states.reachable(begin + n - back), begin + n - back))
            case 2:
                copied = layer.states.snapshot(layer.length)
                assert copied is not None
                layer.run(wrong)
                layer.states.restore(begin + n, copied)
                layer.go_back(begin + n)
    layer.states.clear()
    layer.length = 0
    assert np.array_equal(layer.run(rows), expected)


def test_value_heads_may_take_turns() -> None:
    """Value head i of key head h is then number i * n_k_heads + h."""
    config, rows = CONFIGS["turns"], rows_of("turns", 20)
    order = np.arange(6).reshape(3, 2).T.ravel()
    grouped = replace(config, takes_turns=False)
    n_q, width = 2 * config.n_k_heads * config.k_dim, config.v_dim

    def sorted_heads(part: Floats) -> Floats:
        heads = part.reshape(*part.shape[:-1], 6, -1)
        return np.ascontiguousarray(heads[..., order, :].reshape(part.shape))

    ends = (n_q, config.conv_dim, config.conv_dim + 6, config.conv_dim + 12)
    qk, v, b, a, z = np.split(rows, ends, axis=1)
    conv = random(config.conv_dim * config.kernel, seed=1).reshape(config.conv_dim, -1)
    layer = Layer(native(), "turns")
    expected = layer.run(rows)
    CONFIGS["sorted"] = grouped
    try:
        other = Layer(native(), "sorted")
        of_values = np.ascontiguousarray(conv[n_q:].reshape(6, width * config.kernel))
        other.record(
            conv=np.concatenate([conv[:n_q].ravel(), of_values[order].ravel()]),
            a_log=sorted_heads(layer.op.a_log),
            dt_bias=sorted_heads(layer.op.dt_bias),
        )
        mine = np.concatenate([qk, *map(sorted_heads, (v, b, a, z))], axis=1)
        assert np.array_equal(other.run(mine), sorted_heads(expected))
    finally:
        del CONFIGS["sorted"]


def test_a_gate_multiplies_by_the_sigmoid() -> None:
    x, gates = random(5, 300), 8 * random(5, 300, seed=1)
    gates[0, :3] = np.nan, 200.0, -200.0
    for ops in (native(), TorchOps("cpu", "float32")):
        wrap: Any = torch.from_numpy if isinstance(ops, TorchOps) else np.ascontiguousarray
        out = wrap(x.copy())
        program, state = ops.program(5), StepState(5)
        program.append(Gate(x=out, gate=wrap(gates.copy())))
        state.set([0] * 5, 0)
        assert program.run(state)
        expected = x / (1.0 + np.exp(-gates.astype(np.float64)))
        np.testing.assert_allclose(np.asarray(out), expected, rtol=0, atol=1e-6)


def test_impossible_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="5 is no multiple of the 2 key heads"):
        DeltaNetConfig(n_k_heads=2, n_v_heads=5, k_dim=16, v_dim=16, kernel=4)
    with pytest.raises(ValueError, match="n_groups: 3 do not divide the 8 heads"):
        Mamba2Config(n_heads=8, n_groups=3, head_dim=16, state_dim=16, kernel=4)
    CONFIGS["odd"] = DeltaNetConfig(n_k_heads=1, n_v_heads=1, k_dim=16, v_dim=20, kernel=4)
    CONFIGS["long"] = ShortConvConfig(dim=16, kernel=9)
    CONFIGS["narrow"] = Mamba2Config(n_heads=1, n_groups=1, head_dim=8, state_dim=16, kernel=4)
    try:
        with pytest.raises(ValueError, match="must be multiples of 16"):
            Layer(native(), "odd")
        with pytest.raises(ValueError, match="kernel: must be 1 to 8, not 9"):
            Layer(native(), "long")
        with pytest.raises(ValueError, match="head_dim, state_dim: 8 must be a multiple of 16"):
            Layer(native(), "narrow")
    finally:
        del CONFIGS["odd"], CONFIGS["long"], CONFIGS["narrow"]
