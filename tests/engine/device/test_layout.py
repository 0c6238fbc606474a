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


def four_bits(
    values: Floats,
) -> tuple[Floats, npt.NDArray[np.float16], npt.NDArray[np.float16]]:
    """Codes, scales and minima of blocks, by the definition: the line over the whole range, or one
    over a part of it, moved to where its codes fit best, if its squared error is less.
    """
    low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
    span = high - low
    scales, minima = to_float16(span / np.float32(15)), to_float16(low)
    least = squared_error(values, scales, minima)
    for low_cut, high_cut in product(np.array([0, 0.03, 0.06], np.float32), repeat=2):
        scale = (span - span * low_cut - span * high_cut) / np.float32(15)
        line = [to_float16(part) for part in fitted(values, scale, low + span * low_cut)]
        error = squared_error(values, *line)
        better = error < least
        least = np.where(better, error, least)
        scales, minima = np.where(better, line[0], scales), np.where(better, line[1], minima)
    return codes_on(values, scales.astype(np.float32), minima.astype(np.float32)), scales, minima


def codes_on(values: Floats, scale: Floats, minimum: Floats) -> Floats:
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    codes: Floats = np.clip(np.rint((values - minimum) * inverse), 0, 15)
    return codes


def one_by_one(values: Floats) -> Floats:
    """The sums of blocks, in the order of the columns."""
    sums: Floats = np.add.accumulate(values, axis=-1)
    return sums[..., -1:]


def fitted(values: Floats, scale: Floats, minimum: Floats) -> tuple[Floats, Floats]:
    codes, n = codes_on(values, scale, minimum), np.float32(COLUMNS)
    sums = [one_by_one(part) for part in (codes, codes * codes)]
    value_sum, product_sum = (
        one_by_one(part) for part in (values - minimum, codes * (values - minimum))
    )
    spread = n * sums[1] - sums[0] * sums[0]
    over = np.where(spread > 0, spread, np.float32(1))
    slope = (n * product_sum - sums[0] * value_sum) / over
    moved = minimum + (value_sum - slope * sums[0]) / n
    return np.where(spread > 0, slope, scale), np.where(spread > 0, moved, minimum)


def squared_error(
    values: Floats, scales: npt.NDArray[np.float16], minima: npt.NDArray[np.float16]
) -> Floats:
    scale, minimum = scales.astype(np.float32), minima.astype(np.float32)
    error = scale * codes_on(values, scale, minimum) + minimum - values
    return one_by_one(error * error)


# What the largest weight may get as its code, as shares of the smallest code.
LARGEST_CODES = [16, 8, 12, 10, 14, 9, 11, 13, 15, 15.5, 16.5, 17]


def signed_codes(values: Floats, inverse: Floats, half: int) -> Floats:
    codes: Floats = np.clip(np.rint(values * inverse), -half, half - 1)
    return codes


def inverse_or_zero(values: Floats) -> Floats:
    return np.divide(np.float32(1), values, out=np.zeros_like(values), where=values != 0)


def signed_error(values: Floats, scales: npt.NDArray[np.float16], half: int) -> Floats:
    """The squared error of blocks with the nearest codes from -half to half - 1."""
    wide = scales.astype(np.float32)
    error = wide * signed_codes(values, inverse_or_zero(wide), half) - values
    return one_by_one(error * error)


def plain_scales(values: Floats, half: int) -> npt.NDArray[np.float16]:
    """With the largest weight of each block at the smallest code."""
    return to_float16(np.float32(0) - largest_of(values) / np.float32(half))


def largest_of(values: Floats) -> Floats:
    """The weight of the largest magnitude of each block, with its sign."""
    where = np.abs(values).argmax(-1, keepdims=True)
    largest: Floats = np.take_along_axis(values, where, -1)
    return largest


def best_scales(values: Floats, half: int) -> npt.NDArray[np.float16]:
    """The scales of 6 or 5 bits, by the definition: of those with the largest weight at several
    codes, moved to where their codes fit best, the one that explains most; the plain one if that
    errs no more.
    """
    inverse = inverse_or_zero(largest_of(values))
    most, best = np.zeros_like(inverse), np.zeros_like(inverse)
    for share in LARGEST_CODES:
        codes = signed_codes(values, inverse * np.float32(-share / 16 * half), half)
        squares, products = one_by_one(codes * codes), one_by_one(codes * values)
        scale = np.divide(products, squares, out=np.zeros_like(best), where=squares > 0)
        better = scale * products > most * np.float32(1 + 2**-20)
        most, best = np.where(better, scale * products, most), np.where(better, scale, best)
    plain, fitted_ = plain_scales(values, half), to_float16(best)
    is_better = signed_error(values, fitted_, half) < signed_error(values, plain, half)
    return np.where(is_better, fitted_, plain)


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-12, 1e6])
@pytest.mark.parametrize(("n_out", "n_in"), SIZES)
@pytest.mark.parametrize(("layout", "half"), [("Q6", 32), ("Q5", 16)])
def test_six_and_five_bit_codes_and_scales_are_those_of_the_definition(
    layout: str, half: int, n_out: int, n_in: int, size: float
) -> None:
    weights = weights_of(n_out, n_in) * np.float32(size)
    packed = pack(weights, layout).reshape(-(-n_out // ROWS), -(-n_in // COLUMNS), -1)
    codes, scales, _ = codes_of(packed, layout)
    blocks = blocks_of(weights)
    expected = best_scales(blocks, half)
    assert np.array_equal(scales.reshape(expected.shape), expected)
    inverse = inverse_or_zero(expected.astype(np.float32))
    assert np.array_equal(codes.reshape(blocks.shape), signed_codes(blocks, inverse, half))


@pytest.mark.parametrize(("layout", "half"), [("Q6", 32), ("Q5", 16)])
def test_six_and_five_bits_err_less_than_with_the_largest_weight_at_an_end(
    layout: str, half: int
) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    blocks = blocks_of(weights)
    error = blocks_of(np.square(unpack(pack(weights, layout), layout, 64, 512) - weights))
    plain = signed_error(blocks, plain_scales(blocks, half), half)
    assert np.all(error.sum(-1, keepdims=True) <= plain * np.float32(1 + 1e-5))
    largest = to_float16(np.abs(blocks).max(-1, keepdims=True) / np.float32(half - 1))
    assert error.sum() < 0.9 * min(plain.sum(), signed_error(blocks, largest, half).sum())


@pytest.mark.parametrize("least_range", [1, 16])
@pytest.mark.parametrize(("layout", "half"), [("Q6", 32), ("Q5", 16)])
def test_weights_that_already_are_codes_times_a_scale_are_kept_exactly(
    layout: str, half: int, least_range: int
) -> None:
    """As blocks of 5 bits in other files are, whatever codes they use; in 6 bits only with the
    smallest code.
    """
    random = np.random.default_rng(least_range)
    codes = random.integers(-half, half, (64, 8, COLUMNS))
    if layout == "Q6":
        codes[..., 5] = -half
    else:
        ranges = random.integers(least_range, 17, (64, 8, 1))
        codes = np.clip(codes, -ranges, np.minimum(ranges, 15))
    signs = random.choice([-1, 1], (64, 8, 1))
    scales = signs * 2.0 ** random.uniform(-10, 10, (64, 8, 1))  # an eighth is not subnormal
    weights = (codes * scales.astype(np.float16).astype(np.float32)).astype(np.float32)
    weights = weights.reshape(64, -1)
    assert np.array_equal(unpack(pack(weights, layout), layout, 64, 256), weights)


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
def test_four_bit_codes_scales_and_minima_are_those_of_the_definition(
    n_out: int, n_in: int, size: float
) -> None:
    weights = weights_of(n_out, n_in) * np.float32(size)
    packed = pack(weights, "Q4").reshape(-(-n_out // ROWS), -(-n_in // COLUMNS), -1)
    codes, scales, minima = codes_of(packed, "Q4")
    expected_codes, expected_scales, expected_minima = four_bits(blocks_of(weights))
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


@pytest.mark.parametrize("layout", ["Q6", "Q5", "Q4"])
def test_equal_importance_changes_nothing(layout: str) -> None:
    weights = weights_of(48, 96)
    for importance in (1.0, 0.25, 2.0**40):
        equal = np.full(96, importance, np.float32)
        assert np.array_equal(pack(weights, layout, importance=equal), pack(weights, layout))


@pytest.mark.parametrize("layout", ["Q6", "Q5", "Q4"])
def test_codes_are_most_exact_in_the_important_columns(layout: str) -> None:
    weights = weights_of(64, 512)
    importance = np.random.default_rng(1).lognormal(0, 2, 512).astype(np.float32)
    error, uniform = (
        np.square(unpack(packed, layout, 64, 512) - weights)
        for packed in (pack(weights, layout, importance=importance), pack(weights, layout))
    )
    assert (error * importance).sum() < 0.7 * (uniform * importance).sum()
    assert error.sum() > uniform.sum()


@pytest.mark.parametrize("layout", ["Q6", "Q5", "Q4"])
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


def test_four_bits_err_less_than_with_the_whole_range() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    blocks = blocks_of(weights)
    low = blocks.min(-1, keepdims=True)
    scales, minima = to_float16((blocks.max(-1, keepdims=True) - low) / 15), to_float16(low)
    whole = float(squared_error(blocks, scales, minima).sum())
    error = unpack(pack(weights, "Q4"), "Q4", 64, 512) - weights
    assert float(np.square(error).sum()) < 0.85 * whole


# Panels are kept on disk under the number of their layout: change it together with a digest.
PACKED = {
    "F32": "a1327bc2050c4a07",
    "BF16": "70ea7cd935fb6301",
    "Q8": "f779aaea92a6eabf",
    "Q6": "56092c22a1971d9e",
    "Q5": "15dcbb1758acd8b3",
    "Q4": "70f3f475a54bc39e",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_layout_version_means_the_same_bytes(layout: str) -> None:
    numbers = np.arange(33 * 70, dtype=np.int64) * 7919 % 2003 - 1001
    weights = (numbers.astype(np.float32) / 1024).reshape(33, 70)
    assert _cpu.LAYOUT_VERSION == 2
    digest = hashlib.sha256(pack(weights, layout).tobytes()).hexdigest()
    assert digest.startswith(PACKED[layout])
