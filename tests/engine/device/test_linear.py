"""The native matrix products: against float64, and bit for bit against themselves, however rows,
threads and instruction sets share the work.
"""

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.step import StepState
from engine.native import _cpu
from engine.native.cpu import address
from tests.support.panels import (
    BLOCK_BYTES,
    CODE_BITS,
    COLUMNS,
    LAYOUTS,
    ROWS,
    Floats,
    as_bfloat16,
    pack,
    unpack,
    woven,
)

Doubles = npt.NDArray[np.float64]

pytestmark = pytest.mark.usefixtures("one_thread")

EPS = 1e-5
HALF_ULP = 2.0**-24  # of float32
ROW_COUNTS = [1, 2, 3, 4, 8, 16, 17, 64, 513]
SIZES = [(1, 1), (16, 32), (5, 31), (67, 201), (40, 1100)]


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Matrix:
    """Weights (n_out, n_in) in panels, and the values they stand for."""

    is_woven = False
    is_fetched = False

    def __init__(self, n_out: int, n_in: int, layout: str, *, seed: int = 1) -> None:
        self.hold(random(n_out, n_in, seed=seed), layout)

    def hold(self, weights: Floats, layout: str) -> None:
        self.n_out, self.n_in = weights.shape
        self.layout = layout
        self.panels = pack(as_bfloat16(weights) if layout == "BF16" else weights, layout)
        self.values = unpack(self.panels, layout, self.n_out, self.n_in)

    @classmethod
    def of(cls, weights: Floats, layout: str) -> "Matrix":
        matrix = cls.__new__(cls)
        matrix.hold(weights, layout)
        return matrix

    def weave(self) -> None:
        self.panels, self.is_woven = woven(self.panels, self.layout, self.n_in), True

    def place(self) -> _cpu.Matrix:
        return _cpu.Matrix(
            panels=address(self.panels),
            n_out=self.n_out,
            n_in=self.n_in,
            layout=getattr(_cpu.Layout, self.layout),
            is_woven=self.is_woven,
            is_fetched=self.is_fetched,
        )

    def linear(
        self, x: Floats, bias: Floats | None = None, *, residual: Floats | None = None
    ) -> Floats:
        out = np.full((len(x), self.n_out), np.nan, np.float32)
        scratch = scratch_of([self.place()], len(x))
        tape = _cpu.Tape()
        tape.linear(
            x=address(x),
            sections=[self.place()],
            bias=address(bias),
            residual=address(residual),
            out=address(out),
            scratch=address(scratch),
        )
        run(tape, len(x))
        return out

    def norm_linear(
        self,
        residual: Floats,
        norm: Floats,
        *,
        bias: Floats | None = None,
        gated: bool = False,
    ) -> Floats:
        out = np.full((len(residual), self.n_out // (1 + gated)), np.nan, np.float32)
        scratch = scratch_of([self.place()], len(residual))
        tape = _cpu.Tape()
        tape.norm_linear(
            residual=address(residual),
            norm=address(norm),
            eps=EPS,
            sections=[self.place()],
            bias=address(bias),
            out=address(out),
            epilogue=_cpu.Epilogue.SILU_GATE if gated else _cpu.Epilogue.NONE,
            scratch=address(scratch),
        )
        run(tape, len(residual))
        return out


def gated_matrix(gate: Floats, up: Floats, layout: str) -> Matrix:
    """Panels of gate and up take turns."""
    hidden = len(gate)
    padded = [np.pad(part, ((0, -hidden % ROWS), (0, 0))) for part in (gate, up)]
    panels = np.stack([part.reshape(-1, ROWS, part.shape[1]) for part in padded], axis=1)
    matrix = Matrix.of(panels.reshape(-1, gate.shape[1]), layout)
    matrix.n_out = 2 * hidden
    return matrix


def scratch_of(sections: list[_cpu.Matrix], n_rows: int) -> npt.NDArray[np.uint8]:
    return np.empty(_cpu.linear_scratch_bytes(sections, n_rows), np.uint8)


def run(tape: _cpu.Tape, n_rows: int) -> None:
    state = StepState(n_rows)
    state.set([0] * n_rows, 0)
    assert tape.run(address(state.words)) == 1


def as_codes(x: Floats) -> tuple[Floats, Floats]:
    """What quantised matrices see of x (rows, n_in): codes (rows, blocks, columns) and scales."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % COLUMNS))).reshape(len(x), -1, COLUMNS)
    largest = np.abs(blocks).max(-1, keepdims=True)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(blocks * inverse), largest / np.float32(127)


def seen(x: Floats, layout: str) -> Doubles:
    """x (rows, n_in) as the products of this layout see it."""
    if layout in ("F32", "BF16"):
        return x.astype(np.float64)
    codes, scales = as_codes(x)
    wide = codes.astype(np.float64) * scales
    return wide.reshape(len(x), -1)[:, : x.shape[1]]


def assert_is_product(y: Floats, matrix: Matrix, x: Floats, bias: Floats | None = None) -> None:
    wide, weights = seen(x, matrix.layout), matrix.values.astype(np.float64)
    exact = wide @ weights.T + (0 if bias is None else bias)
    sizes = np.abs(wide) @ np.abs(weights).T + (0 if bias is None else np.abs(bias))
    # Each link of a chain of sums rounds once, to half a unit in the last place of what it has.
    links = matrix.n_in / (COLUMNS if matrix.layout in CODE_BITS else 2)
    slack = 4 if matrix.layout == "Q4" else 1  # scale and minimum of a weight cancel out partly
    bound = (2 * links + 6) * HALF_ULP * sizes * slack + 1e-30
    assert np.all(np.abs(y - exact) <= bound)


@pytest.mark.parametrize("n_rows", ROW_COUNTS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.usefixtures("isa")
def test_the_product_is_that_of_float64_up_to_rounding(
    n_out: int, n_in: int, layout: str, n_rows: int
) -> None:
    matrix, x, bias = Matrix(n_out, n_in, layout), random(n_rows, n_in), random(n_out, seed=2)
    assert_is_product(matrix.linear(x), matrix, x)
    assert_is_product(matrix.linear(x, bias), matrix, x, bias)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.usefixtures("isa")
def test_a_row_is_the_same_among_any_number_of_rows(n_out: int, n_in: int, layout: str) -> None:
    matrix, x = Matrix(n_out, n_in, layout), random(513, n_in)
    together = matrix.linear(x)
    for count in [*range(1, 20), 64, 129, 140]:
        for begin in (0, 513 - count):
            rows = slice(begin, begin + count)
            assert np.array_equal(matrix.linear(x[rows]), together[rows]), (begin, count)


@pytest.mark.parametrize("n_rows", [1, 3, 16, 17, 70])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("isa")
def test_threads_change_nothing(layout: str, n_rows: int) -> None:
    matrix, x = Matrix(67, 201, layout), random(n_rows, 201)
    residual, norm = random(n_rows, 67, seed=3), random(201)
    results = []
    for n_threads in (1, 2, 3, 7):
        _cpu.set_threads(n_threads)
        normed = matrix.norm_linear(x, norm)
        results.append((matrix.linear(x), matrix.linear(x, residual=residual), normed))
    for result in results[1:]:
        for one, many in zip(results[0], result, strict=True):
            assert np.array_equal(one, many)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("layout", CODE_BITS)
@pytest.mark.parametrize(("n_out", "n_in"), [(5, 64), (250, 64), (1003, 64), (250, 1600)])
@pytest.mark.usefixtures("isa")
def test_one_row_is_that_of_two_in_whatever_order_its_panels_are_read(
    n_out: int, n_in: int, layout: str, n_threads: int
) -> None:
    _cpu.set_threads(n_threads)
    gate, up = random(n_out, n_in, seed=5), random(n_out, n_in, seed=6)
    matrix, gated = Matrix(n_out, n_in, layout), gated_matrix(gate, up, layout)
    x, residual, bias = random(2, n_in), random(2, n_out, seed=3), random(n_out, seed=8)
    norm = random(n_in, seed=7)
    one, two = (
        (
            matrix.linear(rows, bias),
            matrix.linear(rows, residual=residual[: len(rows)]),
            gated.norm_linear(rows, norm, gated=True),
        )
        for rows in (x[:1], x)
    )
    for alone, together in zip(one, two, strict=True):
        assert np.array_equal(alone[0], together[0])


@pytest.mark.parametrize("n_rows", [1, 5, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
def test_products_are_the_same_on_every_instruction_set(
    n_out: int, n_in: int, layout: str, n_rows: int
) -> None:
    gate, up = random(n_out, n_in, seed=5), random(n_out, n_in, seed=6)
    matrix, gated = Matrix(n_out, n_in, layout), gated_matrix(gate, up, layout)
    x, norm, bias = 9 * random(n_rows, n_in), random(n_in, seed=7), random(n_out, seed=8)
    best, results = _cpu.isa(), []
    for isa in _cpu.supported_isas():
        assert _cpu.select_isa(isa)
        results.append((matrix.linear(x, bias), gated.norm_linear(x, norm, gated=True)))
    assert _cpu.select_isa(best)
    for result in results[1:]:
        assert np.array_equal(result[0], results[0][0])
        assert np.array_equal(result[1], results[0][1])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_rows", [1, 2, 5, 40])
@pytest.mark.parametrize("layout", CODE_BITS)
@pytest.mark.parametrize(("n_out", "n_in"), [*SIZES, (450, 96)])
@pytest.mark.usefixtures("isa")
def test_woven_panels_give_the_same_products(
    n_out: int, n_in: int, layout: str, n_rows: int, n_threads: int
) -> None:
    _cpu.set_threads(n_threads, [])
    gate, up = random(n_out, n_in, seed=5), random(n_out, n_in, seed=6)
    matrix, gated = Matrix(n_out, n_in, layout), gated_matrix(gate, up, layout)
    x, norm = 9 * random(n_rows, n_in), random(n_in, seed=7)
    apart = matrix.linear(x), gated.norm_linear(x, norm, gated=True)
    matrix.weave()
    gated.weave()
    for is_fetched in (False, True):
        matrix.is_fetched = gated.is_fetched = is_fetched
        assert np.array_equal(matrix.linear(x), apart[0])
        assert np.array_equal(gated.norm_linear(x, norm, gated=True), apart[1])


@pytest.mark.parametrize("n_in", [1, 15, 16, 64, 100, 2048])
@pytest.mark.usefixtures("isa")
def test_the_norm_is_that_of_float64_up_to_rounding(n_in: int) -> None:
    residual, norm = random(3, n_in), random(n_in, seed=2)
    same = Matrix.of(np.eye(n_in, dtype=np.float32), "F32")
    x = residual.astype(np.float64)
    exact = x / np.sqrt(np.square(x).mean(1, keepdims=True) + EPS) * norm
    assert np.allclose(same.norm_linear(residual, norm), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("n_rows", [1, 16, 17, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("isa")
def test_norm_linear_is_the_product_of_the_norm(layout: str, n_rows: int) -> None:
    residual, norm, bias = random(n_rows, 75), random(75, seed=2), random(35, seed=3)
    same, matrix = Matrix.of(np.eye(75, dtype=np.float32), "F32"), Matrix(35, 75, layout)
    y = matrix.norm_linear(residual, norm, bias=bias)
    assert np.array_equal(y, matrix.linear(same.norm_linear(residual, norm), bias))


@pytest.mark.parametrize("n_rows", [1, 16, 17, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("isa")
def test_a_residual_is_added_last(layout: str, n_rows: int) -> None:
    matrix, x = Matrix(35, 75, layout), random(n_rows, 75)
    residual, bias = random(n_rows, 35, seed=1), random(35, seed=3)
    sum_ = matrix.linear(x, bias, residual=residual)
    assert np.array_equal(sum_, residual + matrix.linear(x, bias))


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("n_rows", [1, 16, 40])
@pytest.mark.parametrize("hidden", [1, 16, 43, 64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("isa")
def test_gate_and_up_become_silu_of_the_one_times_the_other(
    layout: str, hidden: int, n_rows: int, with_bias: bool
) -> None:
    gate, up = 4 * random(hidden, 75), random(hidden, 75, seed=1)
    x, norm = random(n_rows, 75, seed=2), random(75, seed=3)
    bias = random(2 * hidden, seed=4) if with_bias else None
    y = gated_matrix(gate, up, layout).norm_linear(x, norm, gated=True, bias=bias)
    gates, ups = (
        Matrix.of(part, layout).norm_linear(x, norm, bias=part_bias).astype(np.float64)
        for part, part_bias in [
            (gate, None if bias is None else bias[:hidden]),
            (up, None if bias is None else bias[hidden:]),
        ]
    )
    # A number that is tiny next to all others need not be exact.
    assert np.allclose(y, gates / (1 + np.exp(-gates)) * ups, rtol=5e-7, atol=1e-30)


@pytest.mark.usefixtures("isa")
def test_silu_keeps_its_precision_and_its_ends() -> None:
    gates = np.concatenate([np.linspace(-89, 89, 4001), [-1e30, 1e30, -3e38, 0.0, 1e-30, np.nan]])
    hidden = len(gates)
    weights = np.zeros((hidden, 1), np.float32)
    bias = np.concatenate([gates, np.ones(hidden)]).astype(np.float32)
    matrix = gated_matrix(weights, weights, "F32")
    one = np.ones((1, 1), np.float32)
    y = matrix.norm_linear(one, one[0], gated=True, bias=bias)[0].astype(np.float64)
    wide = bias[:hidden].astype(np.float64)
    with np.errstate(over="ignore"):
        exact = wide / (1 + np.exp(-wide))
    assert np.isnan(y[-1])
    assert np.allclose(y[:-1], exact[:-1], rtol=2e-7, atol=1e-35)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n_rows", [2, 20])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("isa")
def test_what_is_not_finite_shows_in_its_row_and_in_no_other(
    layout: str, n_rows: int, bad: float
) -> None:
    matrix, x = Matrix(35, 75, layout), random(n_rows, 75)
    clean = matrix.linear(x)
    x[1, 70] = bad
    y = matrix.linear(x)
    assert not np.isfinite(y[1]).any()
    others = np.arange(n_rows) != 1
    assert np.array_equal(y[others], clean[others])


@pytest.mark.parametrize("layout", CODE_BITS)
@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-30, 1e30])
@pytest.mark.usefixtures("isa")
def test_tiny_and_huge_inputs_make_no_nonsense(layout: str, size: float) -> None:
    matrix, x = Matrix(35, 75, layout), random(3, 75)
    x = (x * np.float64(size)).astype(np.float32)
    y = matrix.linear(x)
    assert np.all(np.isfinite(y))
    exact = x.astype(np.float64) @ matrix.values.T.astype(np.float64)
    largest = np.abs(x).astype(np.float64).max(1, keepdims=True)
    assert np.all(np.abs(y - exact) <= largest * np.abs(matrix.values).sum(1) / 200 + 1e-28)


@pytest.mark.parametrize("layout", CODE_BITS)
@pytest.mark.usefixtures("isa")
def test_extreme_codes_do_not_overflow(layout: str) -> None:
    """All weights and inputs as large as codes go, with every combination of signs."""
    signs = np.where(np.random.default_rng(0).random((32, 256)) < 0.5, -1, 1).astype(np.float32)
    signs[0], signs[1] = 1, -1
    matrix = Matrix.of(signs, layout)
    for x in (signs, np.ones_like(signs), -np.ones_like(signs)):
        assert np.allclose(matrix.linear(x), x @ matrix.values.T, atol=2e-2)


@pytest.mark.parametrize("n_rows", [1, 6, 20])
@pytest.mark.parametrize("layout", CODE_BITS)
@pytest.mark.usefixtures("isa")
def test_the_largest_stored_codes_do_not_overflow(layout: str, n_rows: int) -> None:
    """All bits of the codes set, and inputs whose products have the same sign, or any."""
    matrix, signs = Matrix(32, 256, layout), np.sign(random(n_rows, 256))
    blocks = matrix.panels.reshape(-1, BLOCK_BYTES[layout])
    blocks[:, : ROWS * COLUMNS * CODE_BITS[layout] // 8] = 0xFF
    matrix.values = unpack(matrix.panels, layout, 32, 256)
    for x in (signs, np.ones_like(signs), -np.ones_like(signs)):
        assert_is_product(matrix.linear(x), matrix, x)
