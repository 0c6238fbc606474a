"""Weights in panels: what goes in comes out, exactly or rounded as the layout says, on every
instruction set.
"""

import hashlib
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.native import _cpu
from tests.support.panels import (
    COLUMNS,
    LAYOUTS,
    ROWS,
    Floats,
    as_bfloat16,
    as_float32,
    codes_of,
    pack,
    pack_rows,
    row_addresses,
    unpack,
    woven,
)

pytestmark = pytest.mark.usefixtures("isa")

SIZES = [(1, 1), (16, 32), (5, 31), (17, 33), (48, 96), (33, 130)]
LARGEST_FLOAT16 = 65504.0


def weights_of(n_out: int, n_in: int) -> Floats:
    """Of very different sizes, block by block and row by row."""
    random = np.random.default_rng(n_out * 1000 + n_in)
    values = random.standard_normal((n_out, n_in)) * 10.0 ** random.uniform(-4, 3, (n_out, 1))
    return values.astype(np.float32)


def stored(values: Floats, source: str) -> npt.NDArray[Any]:
    if source == "bfloat16":
        return as_bfloat16(values)
    return values.astype(np.dtype(source))


def blocks_of(values: Floats) -> Floats:
    """(rows, blocks, columns) of whole panels and blocks, filled up with zeros."""
    n_out, n_in = values.shape
    padded = np.pad(values, ((0, -n_out % ROWS), (0, -n_in % COLUMNS)))
    return padded.reshape(len(padded), -1, COLUMNS)


def to_float16(values: Floats) -> npt.NDArray[np.float16]:
    return np.clip(values, -LARGEST_FLOAT16, LARGEST_FLOAT16).astype(np.float16)


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
def test_float32_panels_hold_every_stored_weight_exactly(
    n_out: int, n_in: int, source: str
) -> None:
    weights = stored(weights_of(n_out, n_in), source)
    assert np.array_equal(unpack(pack(weights, "F32"), "F32", n_out, n_in), as_float32(weights))


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
def test_bfloat16_panels_hold_the_nearest_bfloat16(n_out: int, n_in: int, source: str) -> None:
    weights = stored(weights_of(n_out, n_in), source)
    nearest = as_float32(as_bfloat16(as_float32(weights)))
    assert np.array_equal(unpack(pack(weights, "BF16"), "BF16", n_out, n_in), nearest)


@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
def test_float16_weights_are_read_down_to_the_subnormal_ones(n_out: int, n_in: int) -> None:
    weights = (weights_of(n_out, n_in) * np.float32(1e-6)).astype(np.float16)
    assert np.array_equal(unpack(pack(weights, "F32"), "F32", n_out, n_in), as_float32(weights))


def eight_bits(values: Floats) -> tuple[Floats, npt.NDArray[np.float16]]:
    """Codes and scales of blocks, by the definition."""
    largest = np.abs(values).max(-1, keepdims=True)
    scales = to_float16(largest / np.float32(127))
    wide = scales.astype(np.float32)
    codes = np.divide(values, wide, out=np.zeros_like(values), where=wide > 0)
    return np.clip(np.rint(codes), -127, 127), scales


# The layouts with a scale and a minimum: their largest code, and the shares of the range that may
# be cut off at either end.
ON_A_LINE = {"Q6": (63, [0]), "Q5": (31, [0, 0.03]), "Q4": (15, [0, 0.03, 0.06])}

Halves = npt.NDArray[np.float16]


def on_a_line(values: Floats, layout: str) -> tuple[Floats, Halves, Halves]:
    """Codes, scales and minima of blocks, by the definition: the line over the whole range, or one
    over a part of it, moved to where its codes fit best, if its squared error is less.
    """
    largest, cuts = ON_A_LINE[layout]
    low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
    span = high - low
    scales, minima = whole_range(values, layout)
    least = squared_error(values, scales, minima, layout)
    for low_cut, high_cut in product(np.array(cuts, np.float32), repeat=2):
        scale = (span - span * low_cut - span * high_cut) / np.float32(largest)
        line = fitted(values, scale, low + span * low_cut, layout)
        new_scales, new_minima = to_float16(line[0]), to_float16(line[1])
        error = squared_error(values, new_scales, new_minima, layout)
        better = error < least
        least = np.where(better, error, least)
        scales = np.where(better, new_scales, scales)
        minima = np.where(better, new_minima, minima)
    codes = codes_on(values, scales.astype(np.float32), minima.astype(np.float32), layout)
    return codes, scales, minima


def whole_range(values: Floats, layout: str) -> tuple[Halves, Halves]:
    """The line from the smallest to the largest value of each block."""
    low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
    return to_float16((high - low) / np.float32(ON_A_LINE[layout][0])), to_float16(low)


def codes_on(values: Floats, scale: Floats, minimum: Floats, layout: str) -> Floats:
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    codes: Floats = np.clip(np.rint((values - minimum) * inverse), 0, ON_A_LINE[layout][0])
    return codes


def one_by_one(values: Floats) -> Floats:
    """The sums of blocks, in the order of the columns."""
    sums: Floats = np.add.accumulate(values, axis=-1)
    return sums[..., -1:]


def fitted(values: Floats, scale: Floats, minimum: Floats, layout: str) -> tuple[Floats, Floats]:
    codes, n = codes_on(values, scale, minimum, layout), np.float32(COLUMNS)
    sums = [one_by_one(part) for part in (codes, codes * codes)]
    value_sum, product_sum = (
        one_by_one(part) for part in (values - minimum, codes * (values - minimum))
    )
    spread = n * sums[1] - sums[0] * sums[0]
    over = np.where(spread > 0, spread, np.float32(1))
    slope = (n * product_sum - sums[0] * value_sum) / over
    moved = minimum + (value_sum - slope * sums[0]) / n
    return np.where(spread > 0, slope, scale), np.where(spread > 0, moved, minimum)


def squared_error(values: Floats, scales: Halves, minima: Halves, layout: str) -> Floats:
    scale, minimum = scales.astype(np.float32), minima.astype(np.float32)
    error = scale * codes_on(values, scale, minimum, layout) + minimum - values
    return one_by_one(error * error)


@pytest.mark.parametrize(("layout", "share"), [("Q6", 0.97), ("Q5", 0.94), ("Q4", 0.85)])
def test_codes_on_a_line_err_less_than_with_the_whole_range(layout: str, share: float) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    blocks = blocks_of(weights)
    error = blocks_of(np.square(unpack(pack(weights, layout), layout, 64, 512) - weights))
    plain = squared_error(blocks, *whole_range(blocks, layout), layout)
    assert np.all(error.sum(-1, keepdims=True) <= plain * np.float32(1 + 1e-5))
    assert error.sum() < share * plain.sum()


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-12, 1e6])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
def test_eight_bit_codes_and_scales_are_those_of_the_definition(
    n_out: int, n_in: int, size: float
) -> None:
    weights = weights_of(n_out, n_in) * np.float32(size)
    packed = pack(weights, "Q8").reshape(-(-n_out // ROWS), -(-n_in // COLUMNS), -1)
    codes, scales, _ = codes_of(packed, "Q8")
    expected_codes, expected_scales = eight_bits(blocks_of(weights))
    assert np.array_equal(scales.reshape(expected_scales.shape), expected_scales)
    assert np.array_equal(codes.reshape(expected_codes.shape), expected_codes)


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-12, 1e6])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.parametrize("layout", ON_A_LINE)
def test_codes_scales_and_minima_are_those_of_the_definition(
    layout: str, n_out: int, n_in: int, size: float
) -> None:
    weights = weights_of(n_out, n_in) * np.float32(size)
    packed = pack(weights, layout).reshape(-(-n_out // ROWS), -(-n_in // COLUMNS), -1)
    codes, scales, minima = codes_of(packed, layout)
    expected_codes, expected_scales, expected_minima = on_a_line(blocks_of(weights), layout)
    assert np.array_equal(scales.reshape(expected_scales.shape), expected_scales)
    assert np.array_equal(minima.reshape(expected_minima.shape), expected_minima)
    assert np.array_equal(codes.reshape(expected_codes.shape), expected_codes)


def test_quantised_weights_are_within_one_step_of_the_original() -> None:
    weights = weights_of(48, 96)
    blocks = blocks_of(weights)
    for layout, steps, span in [
        ("Q8", 127, np.abs(blocks).max(-1)),
        ("Q4", 15, blocks.max(-1) - blocks.min(-1)),
    ]:
        error = np.abs(unpack(pack(weights, layout), layout, 48, 96) - weights)
        largest = error.reshape(blocks.shape).max(-1)
        # Half a step, and what the float16 of scale and minimum add; of four bits, a part of the
        # range may be cut off.
        cut = 0.0 if layout == "Q8" else 0.12
        bound = span * (cut + 0.5 / steps) + np.abs(blocks).max(-1) * 2.0**-10 + steps * 2.0**-25
        assert np.all(largest <= bound), layout


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_come_from_anywhere(layout: str) -> None:
    first, second = weights_of(20, 40), weights_of(4, 40)
    rows = np.concatenate([row_addresses(second)[:4], row_addresses(first)[:20]])
    rows = np.insert(rows, 7, 0)  # a row of zeros
    panels, bad = pack_rows(np.pad(rows, (0, -len(rows) % ROWS)), "F32", 40, layout)
    together = np.insert(np.concatenate([second, first]), 7, 0, axis=0)
    assert bad[0] == -1
    assert np.array_equal(panels, pack(together, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bad_value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (18, 39), (3, 32)])
def test_the_first_weight_that_is_not_finite_is_reported(
    where: tuple[int, int], bad_value: float, source: str, layout: str
) -> None:
    values = np.ones((19, 40), np.float32)
    values[where] = values[18, 39] = bad_value
    weights = stored(values, source) if source != "bfloat16" else bfloat16_bits(values)
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    _, bad = pack_rows(row_addresses(weights), names[source], 40, layout)
    assert bad == where


def bfloat16_bits(values: Floats) -> npt.NDArray[np.uint16]:
    """Cut, which is exact for ones, NaN and infinity."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("layout", ON_A_LINE)
def test_equal_importance_changes_nothing(layout: str) -> None:
    weights = weights_of(48, 96)
    for importance in (1.0, 0.25, 2.0**40):
        equal = np.full(96, importance, np.float32)
        assert np.array_equal(pack(weights, layout, importance=equal), pack(weights, layout))


@pytest.mark.parametrize("layout", ON_A_LINE)
def test_codes_are_most_exact_in_the_important_columns(layout: str) -> None:
    weights = weights_of(64, 512)
    importance = np.random.default_rng(1).lognormal(0, 2, 512).astype(np.float32)
    error, uniform = (
        np.square(unpack(packed, layout, 64, 512) - weights)
        for packed in (pack(weights, layout, importance=importance), pack(weights, layout))
    )
    assert (error * importance).sum() < 0.7 * (uniform * importance).sum()
    assert error.sum() > uniform.sum()


@pytest.mark.parametrize("layout", ON_A_LINE)
def test_without_importance_weights_are_still_near(layout: str) -> None:
    weights, importance = weights_of(32, 64), np.zeros(64, np.float32)
    values = unpack(pack(weights, layout, importance=importance), layout, 32, 64)
    largest = np.abs(blocks_of(weights)).max(-1).repeat(COLUMNS, axis=1)
    assert np.all(np.abs(values - weights) <= largest / 14)


def test_columns_without_importance_take_what_the_others_leave() -> None:
    weights, importance = weights_of(32, 64), np.zeros(64, np.float32)
    importance[[3, 7]] = 1.0
    values = unpack(pack(weights, "Q4", importance=importance), "Q4", 32, 64)
    assert np.allclose(values[:, [3, 7]], weights[:, [3, 7]], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("n_out", [1, 16, 64, 100, 130])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_blocks_of_four_woven_panels_take_turns(layout: str, n_out: int) -> None:
    weights = weights_of(n_out, 100)
    assert np.array_equal(
        pack(weights, layout, is_woven=True), woven(pack(weights, layout), layout, 100)
    )


@pytest.mark.parametrize("is_woven", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_panels_can_be_packed_in_parts(layout: str, is_woven: bool) -> None:
    weights = weights_of(112, 40)
    whole = pack(weights, layout, is_woven=is_woven)
    rows = row_addresses(weights)
    parts = np.zeros_like(whole)
    for panel in (2, 6, 0, 1, 4, 3, 5):
        _cpu.pack(
            rows=rows.ctypes.data,
            source=_cpu.SourceType.F32,
            n_in=40,
            layout=getattr(_cpu.Layout, layout),
            is_woven=is_woven,
            panels=parts.ctypes.data,
            n_panels=7,
            begin_panel=panel,
            end_panel=panel + 1,
            importance=0,
        )
    assert np.array_equal(parts, whole)


# Panels are kept on disk under the number of their layout: change it together with a digest.
PACKED = {
    "F32": "a1327bc2050c4a07",
    "BF16": "70ea7cd935fb6301",
    "Q8": "f779aaea92a6eabf",
    "Q6": "6561a232444fc978",
    "Q5": "3f9df47f99648fb5",
    "Q4": "70f3f475a54bc39e",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_layout_version_means_the_same_bytes(layout: str) -> None:
    numbers = np.arange(33 * 70, dtype=np.int64) * 7919 % 2003 - 1001
    weights = (numbers.astype(np.float32) / 1024).reshape(33, 70)
    assert _cpu.LAYOUT_VERSION == 5
    digest = hashlib.sha256(pack(weights, layout).tobytes()).hexdigest()
    assert digest.startswith(PACKED[layout])
