"""Products with matrices of GGUF types: against float64, and bit for bit against themselves,
however rows, threads, orders of panels and instruction sets share the work.
"""

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.arguments import Linear, NormLinear
from engine.device.cpu.matrix import PanelMatrix, pack
from engine.device.cpu.program import CpuProgram
from engine.device.formats import EXACT_FORMATS
from engine.device.step import StepState
from engine.gguf.blocks import BlockRows
from engine.native import _cpu
from tests.support.gguf_blocks import BLOCK_TYPES, Floats, decoded, random_rows

Doubles = npt.NDArray[np.float64]
Product = Linear[Floats, PanelMatrix] | NormLinear[Floats, PanelMatrix]

pytestmark = pytest.mark.usefixtures("one_thread")

# Types whose codes and scales are stored in a way that no other type of the list has.
TYPES = [name for name in BLOCK_TYPES if name not in ("Q3_K", "Q4_1", "Q5_1", "Q8_0")]
COLUMNS = 32  # of x that share a scale
HALF_ULP = 2.0**-24  # of float32
# One panel; a bundle of four and a rest, which has rows of padding; several chunks of columns; four
# streams of short panels; bundles of long ones, of which the second is fetched ahead.
SIZES = [(16, 256), (75, 512), (40, 1280), (128, 512), (144, 2816)]


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed(rows: BlockRows, *, is_woven: bool = False) -> PanelMatrix:
    return pack([rows], EXACT_FORMATS[rows.type.name], gated=False, is_woven=is_woven)


def linear(matrix: PanelMatrix, x: Floats, bias: Floats | None = None) -> Floats:
    out = np.full((len(x), matrix.n_out), np.nan, np.float32)
    return run(Linear(x=x, matrix=matrix, bias=bias, out=out), out)


def norm_linear(matrix: PanelMatrix, x: Floats) -> Floats:
    """Of a matrix of gate and up rows."""
    out = np.full((len(x), matrix.n_out // 2), np.nan, np.float32)
    norm = random(matrix.n_in, seed=7)
    op = NormLinear(residual=x, norm=norm, eps=1e-5, matrix=matrix, gated=True, out=out)
    return run(op, out)


def run(op: Product, out: Floats) -> Floats:
    program, state = CpuProgram(len(out)), StepState(len(out))
    program.append(op)
    state.set([0] * len(out), 0)
    assert program.run(state)
    return out


def seen(x: Floats) -> Doubles:
    """x (rows, n_in) as products with codes see it."""
    blocks = x.reshape(len(x), -1, COLUMNS)
    largest = np.abs(blocks).max(-1, keepdims=True)
    codes = np.rint(blocks * (np.float32(127) / largest)).astype(np.float64)
    values: Doubles = codes * (largest / np.float32(127))
    return values.reshape(x.shape)


def assert_is_product(y: Floats, rows: BlockRows, x: Floats) -> None:
    wide, weights = seen(x), decoded(rows).astype(np.float64)
    exact, sizes = wide @ weights.T, np.abs(wide) @ np.abs(weights).T
    # A block's scales and minima add up to four links of a chain of sums, and each rounds once. A
    # scale times codes, and a minimum, may be larger than the weight in which they cancel out.
    links = 4 * x.shape[1] / COLUMNS
    assert np.all(np.abs(y - exact) <= (2 * links + 6) * HALF_ULP * 4 * sizes + 1e-30)


@pytest.mark.parametrize("n_rows", [1, 2, 17])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.usefixtures("isa")
def test_the_product_is_that_of_float64_up_to_rounding(
    name: str, n_out: int, n_in: int, n_rows: int
) -> None:
    rows, x = random_rows(name, n_out, n_in), random(n_rows, n_in)
    assert_is_product(linear(packed(rows), x), rows, x)


@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.usefixtures("isa")
def test_a_row_is_the_same_among_any_number_of_rows(name: str, n_out: int, n_in: int) -> None:
    matrix, x = packed(random_rows(name, n_out, n_in)), random(140, n_in)
    together = linear(matrix, x)
    for count in [*range(1, 19), 64, 129]:
        for begin in (0, 140 - count):
            rows = slice(begin, begin + count)
            assert np.array_equal(linear(matrix, x[rows]), together[rows]), (begin, count)


@pytest.mark.parametrize("n_rows", [1, 5, 16, 40])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.parametrize("name", TYPES)
def test_order_threads_and_instruction_set_change_nothing(
    name: str, n_out: int, n_in: int, n_rows: int
) -> None:
    rows, x, bias = random_rows(name, n_out, n_in), 9 * random(n_rows, n_in), random(n_out, seed=8)
    parts = [random_rows(name, n_out, n_in, seed=seed) for seed in (5, 6)]
    best, results = _cpu.isa(), []
    for isa in _cpu.supported_isas():
        assert _cpu.select_isa(isa)
        for is_woven, n_threads in [(False, 1), (True, 1), (False, 3), (True, 3)]:
            _cpu.set_threads(n_threads)
            matrix = packed(rows, is_woven=is_woven)
            gated = pack(parts, matrix.format, gated=True, is_woven=is_woven)
            results.append((linear(matrix, x, bias), norm_linear(gated, x)))
    assert _cpu.select_isa(best)
    for result in results[1:]:
        assert np.array_equal(result[0], results[0][0])
        assert np.array_equal(result[1], results[0][1])


# Where a block has nothing but codes.
CODES = {
    "Q4_0": (2, 18),
    "Q4_1": (4, 20),
    "Q5_0": (2, 22),
    "Q5_1": (4, 24),
    "Q8_0": (2, 34),
    "Q2_K": (16, 80),
    "Q3_K": (0, 96),
    "Q4_K": (16, 144),
    "Q5_K": (16, 176),
    "Q6_K": (0, 192),
    "IQ4_NL": (2, 18),
    "IQ4_XS": (8, 136),
    "MXFP4": (1, 17),
}


# 0x77 and 0xFF have the largest numbers of MXFP4.
@pytest.mark.parametrize("byte", [0x00, 0x77, 0x80, 0xFF])
@pytest.mark.parametrize("n_rows", [1, 6, 20])
@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.usefixtures("isa")
def test_extreme_codes_do_not_overflow(name: str, n_rows: int, byte: int) -> None:
    """All codes of the smallest or largest value, and inputs whose products have the same sign, or
    any.
    """
    rows = random_rows(name, 32, 512)
    begin, end = CODES[name]
    rows.rows.reshape(32, -1, rows.type.n_bytes)[..., begin:end] = byte
    signs = np.sign(random(n_rows, 512))
    for x in (signs, np.ones_like(signs), -np.ones_like(signs)):
        assert_is_product(linear(packed(rows), x), rows, x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n_rows", [2, 20])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.usefixtures("isa")
def test_what_is_not_finite_shows_in_its_row_and_in_no_other(
    name: str, n_rows: int, bad: float
) -> None:
    matrix, x = packed(random_rows(name, 35, 256)), random(n_rows, 256)
    clean = linear(matrix, x)
    x[1, 70] = bad
    y = linear(matrix, x)
    assert not np.isfinite(y[1]).any()
    others = np.arange(n_rows) != 1
    assert np.array_equal(y[others], clean[others])
