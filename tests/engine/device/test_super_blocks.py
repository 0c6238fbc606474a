"""Weights rounded into super-blocks: codes and scales are those of the definition, on every
instruction set, and cost little more than scales of their own for each block.
"""

import hashlib
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.cpu.matrix import PanelMatrix, pack
from engine.device.formats import GGUF_FORMATS, IN_SUPER_BLOCKS, in_super_blocks, matrix_bytes
from engine.device.ops import NotFiniteError
from engine.native import _cpu
from tests.support.gguf_blocks import decoded, random_rows
from tests.support.panels import content

Floats = npt.NDArray[np.float32]

SUPER, BLOCK, HALF = 256, 32, 16
LARGEST_FLOAT16 = 65504.0
# The largest code, and the shares of the range that may be cut off at either end.
ON_A_LINE = {"q5_k": (31, (0, 0.03)), "q4_k": (15, (0, 0.03, 0.06))}
SHAPES = [(1, SUPER), (37, 2 * SUPER)]


def packed(weights: Floats, format_: str, importance: Floats | None = None) -> PanelMatrix:
    return pack([weights], format_, gated=False, is_woven=True, importance=importance)


def normal(n_out: int, n_in: int) -> Floats:
    """Of very different sizes, row by row and block by block."""
    random = np.random.default_rng(n_out * 1000 + n_in)
    sizes = 10.0 ** random.uniform(-4, 3, (n_out, 1)) * np.repeat(
        random.uniform(0.1, 2, (n_out, n_in // BLOCK)), BLOCK, axis=1
    )
    return (random.standard_normal((n_out, n_in)) * sizes).astype(np.float32)


def importance_of(n_in: int) -> Floats:
    return np.exp(np.random.default_rng(n_in).standard_normal(n_in)).astype(np.float32)


# ---- The definition. ----


def up_to_float16(values: Floats) -> Floats:
    """The next one that is not smaller."""
    nearest = np.clip(values, 0, LARGEST_FLOAT16).astype(np.float16)
    is_less = (nearest < values) & (nearest < LARGEST_FLOAT16)
    bits = nearest.view(np.uint16) + is_less.astype(np.uint16)
    return bits.view(np.float16).astype(np.float32)


def inverse(values: Floats) -> Floats:
    return np.divide(np.float32(1), values, out=np.zeros_like(values), where=values != 0)


def quotient(values: Floats, by: Floats, otherwise: Floats) -> Floats:
    return np.divide(values, by, out=otherwise.copy(), where=by > 0)


def summed(values: Floats) -> Floats:
    """In the order of the columns."""
    sums: Floats = np.add.accumulate(values, axis=-1)[..., -1:]
    return sums


def rounded(values: Floats, low: int, high: int) -> Floats:
    result: Floats = np.clip(np.rint(values), low, high)
    return result


class Blocks(NamedTuple):
    """Weights (rows, super-blocks, blocks, columns), and how much an error in each counts."""

    weights: Floats
    importance: Floats


class Line(NamedTuple):
    """Of each block, (rows, super-blocks, blocks, 1)."""

    scale: Floats
    minimum: Floats


def codes_on(blocks: Blocks, line: Line, largest: int) -> Floats:
    return rounded((blocks.weights - line.minimum) * inverse(line.scale), 0, largest)


def error_of(blocks: Blocks, line: Line, largest: int) -> Floats:
    error = line.scale * codes_on(blocks, line, largest) + line.minimum - blocks.weights
    return summed(blocks.importance * (error * error))


def better_of(least: Floats, error: Floats, best: Line, line: Line) -> tuple[Floats, Line]:
    better = error < least
    chosen = Line(*(np.where(better, new, old) for old, new in zip(best, line, strict=True)))
    return np.where(better, error, least), chosen


def fitted(blocks: Blocks, line: Line, largest: int) -> Line:
    """The least-squares line for the codes of `line`, with no minimum above 0."""
    codes, importance = codes_on(blocks, line, largest), blocks.importance
    values = blocks.weights - line.minimum
    n, code_sum, square_sum = (
        summed(importance * each) for each in (np.ones_like(codes), codes, codes * codes)
    )
    value_sum, product_sum = (summed(importance * each) for each in (values, codes * values))
    spread = n * square_sum - code_sum * code_sum
    slope = quotient(n * product_sum - code_sum * value_sum, spread, line.scale)
    moved = line.minimum + quotient(value_sum - slope * code_sum, n, np.zeros_like(n))
    minimum = np.where(spread > 0, moved, line.minimum)
    through_zero = quotient(product_sum + line.minimum * code_sum, square_sum, slope)
    is_above = minimum > 0
    return Line(np.where(is_above, through_zero, slope), np.where(is_above, 0, minimum))


def best_line(blocks: Blocks, format_: str) -> Line:
    largest, cuts = ON_A_LINE[format_]
    low = np.minimum(blocks.weights.min(-1, keepdims=True), 0)
    high = blocks.weights.max(-1, keepdims=True)
    span = high - low
    best = Line(span / np.float32(largest), low)
    least = error_of(blocks, best, largest)
    for low_cut, high_cut in product(np.array(cuts, np.float32), repeat=2):
        scale = (span - span * low_cut - span * high_cut) / np.float32(largest)
        line = fitted(blocks, Line(scale, np.minimum(low + span * low_cut, 0)), largest)
        least, best = better_of(least, error_of(blocks, line, largest), best, line)
    return best


def numbered(blocks: Blocks, wanted: Line, largest: int) -> Line:
    """Lines whose scales and minima are numbers of 6 bits, times a factor of each super-block."""
    scale_factor, minimum_factor = (
        up_to_float16(each.max(-2, keepdims=True) / np.float32(63))
        for each in (wanted.scale, -wanted.minimum)
    )

    def line_of(scale: Floats, minimum: Floats) -> Line:
        return Line(scale_factor * scale, -minimum_factor * minimum)

    scale = rounded(wanted.scale * inverse(scale_factor), 0, 63)
    best = line_of(scale, rounded(-wanted.minimum * inverse(minimum_factor), 0, 63))
    start, least = best, error_of(blocks, best, largest)
    n = summed(blocks.importance)
    for more in (-1, 0, 1):
        own = rounded(scale + np.float32(more), 0, 63)
        line = Line(scale_factor * own, start.minimum)
        codes = codes_on(blocks, line, largest)
        rest = summed(blocks.importance * (line.scale * codes - blocks.weights))
        number = rounded(rest / n * inverse(minimum_factor), 0, 63)
        line = line_of(own, number)
        least, best = better_of(least, error_of(blocks, line, largest), best, line)
    return best


def on_lines(blocks: Blocks, format_: str) -> Floats:
    largest = ON_A_LINE[format_][0]
    line = numbered(blocks, best_line(blocks, format_), largest)
    return line.scale * codes_on(blocks, line, largest) + line.minimum


def with_signs(halves: Blocks) -> Floats:
    """Codes of 6 bits from -32 on, with a scale for each half of a block."""
    weights, importance = halves
    at = np.abs(weights).argmax(-1)[..., None]
    largest = np.take_along_axis(weights, at, -1)

    def codes_of(scale: Floats) -> Floats:
        return rounded(weights * inverse(scale), -32, 31)

    best, least = np.zeros_like(largest), np.full_like(largest, np.inf)
    for reach in (32, 33, 34):
        scale = largest / np.float32(-reach)
        codes = codes_of(scale)
        scale = quotient(
            summed(importance * (codes * weights)), summed(importance * (codes * codes)), scale
        )
        rest = scale * codes_of(scale) - weights
        error = summed(importance * (rest * rest))
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    factor = up_to_float16(np.abs(best).max(-2, keepdims=True) / np.float32(127))
    scale = factor * rounded(best * inverse(factor), -127, 127)
    return scale * codes_of(scale)


def defined(weights: Floats, format_: str, importance: Floats) -> Floats:
    width = HALF if format_ == "q6_k" else BLOCK
    shape = len(weights), -1, SUPER // width, width
    blocks = Blocks(
        weights.reshape(shape), np.broadcast_to(importance, weights.shape).reshape(shape)
    )
    values = with_signs(blocks) if format_ == "q6_k" else on_lines(blocks, format_)
    return values.reshape(weights.shape)


# ---- The tests. ----


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-12, 1e6])
@pytest.mark.parametrize(("n_out", "n_in"), SHAPES)
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_weights_are_rounded_to_those_of_the_definition(
    format_: str, n_out: int, n_in: int, size: float, is_weighted: bool
) -> None:
    weights = normal(n_out, n_in) * np.float32(size)
    importance = importance_of(n_in) if is_weighted else None
    expected = defined(
        weights, format_, np.ones(n_in, np.float32) if importance is None else importance
    )
    np.testing.assert_array_equal(content(packed(weights, format_, importance)), expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_weights_of_one_sign_and_constant_ones(format_: str) -> None:
    weights: Floats = np.abs(normal(16, SUPER))
    weights[1::2] *= -1
    weights[2:4] = [[3.0], [-3.0]]
    weights[4] = 0
    weights[5, BLOCK:] = 0
    ones = np.ones(SUPER, np.float32)
    found = content(packed(weights, format_))
    np.testing.assert_array_equal(found, defined(weights, format_, ones))
    assert not found[4].any()
    assert not found[5, BLOCK:].any()
    np.testing.assert_allclose(found[2:4], weights[2:4], rtol=0.02)
    # Half a step, and what may be cut off.
    steps = {"q6_k": 62, "q5_k": 31, "q4_k": 15}[format_]
    span = np.abs(weights).max(1, keepdims=True)
    assert (np.abs(found - weights) <= span * (0.12 + 0.5 / steps)).all()


@pytest.mark.parametrize(("own", "format_"), IN_SUPER_BLOCKS.items())
def test_half_a_bit_less_costs_little(own: str, format_: str) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
    importance = importance_of(1024)

    def error(each: str) -> float:
        rest = content(packed(weights, each, importance)) - weights
        return float((importance * (rest * rest)).sum())

    n_bits = [8 * matrix_bytes(each, 64, 1024) / weights.size for each in (own, format_)]
    assert n_bits[0] - n_bits[1] >= 0.4
    assert error(format_) < 1.08 * error(own)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_columns_without_importance_do_not_count(format_: str) -> None:
    weights = normal(20, SUPER)
    importance = np.ones(SUPER, np.float32)
    importance[BLOCK : 2 * BLOCK] = 0
    importance[::7] = 0
    found = content(packed(weights, format_, importance))
    assert np.isfinite(found).all()
    plain = content(packed(weights, format_))
    counts = importance > 0
    errors = [(np.square(each - weights) * counts).sum() for each in (found, plain)]
    assert errors[0] < errors[1]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_what_is_no_number_is_found(format_: str, value: float) -> None:
    weights = normal(40, 2 * SUPER)
    weights[33, 300] = value
    with pytest.raises(NotFiniteError) as caught:
        packed(weights, format_)
    assert caught.value.index == (33, 300)


@pytest.mark.parametrize("is_woven", [False, True])
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_the_order_of_panels_and_blocks_of_a_file_change_nothing(
    format_: str, is_woven: bool
) -> None:
    rows = random_rows("Q8_0", 16 * 7 + 3, 2 * SUPER)
    weights = decoded(rows)
    expected = content(packed(weights, format_))
    for source in (rows, weights):
        matrix = pack([source], format_, gated=False, is_woven=is_woven)
        np.testing.assert_array_equal(content(matrix), expected)


def test_only_whole_super_blocks_are_held_in_them() -> None:
    assert in_super_blocks("4bit", 3 * SUPER) == "q4_k"
    assert in_super_blocks("4bit", 3 * SUPER + BLOCK) == "4bit"
    assert in_super_blocks("8bit", SUPER) == "8bit"
    assert set(IN_SUPER_BLOCKS.values()) < set(GGUF_FORMATS)


# Panels are kept on disk under the number of their layout: change it together with a digest.
PACKED = {"q6_k": "a5b7db1dae2990eb", "q5_k": "0161b8aab227ca89", "q4_k": "ba58fa96040c515a"}


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("format_", IN_SUPER_BLOCKS.values())
def test_the_same_layout_version_means_the_same_bytes(format_: str) -> None:
    numbers = np.arange(33 * SUPER, dtype=np.int64) * 7919 % 2003 - 1001
    weights = (numbers.astype(np.float32) / np.float32(1024)).reshape(33, SUPER)
    assert _cpu.LAYOUT_VERSION == 5
    digest = hashlib.sha256(packed(weights, format_).panels.tobytes()).hexdigest()
    assert digest.startswith(PACKED[format_])
