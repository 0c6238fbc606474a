"""Blocks of GGUF types in panels: not a bit of a weight changes, and what is no number is refused.

What the blocks mean, the `gguf` package says; what panels hold, the embedding op.
"""

import numpy as np
import pytest

from engine.device.cpu.matrix import pack
from engine.device.formats import EXACT_FORMATS, GGUF_FORMATS, matrix_bytes
from engine.device.ops import NotFiniteError
from engine.gguf.blocks import BlockRows
from engine.gguf.types import READ
from tests.support.gguf_blocks import BLOCK_TYPES, HALVES, Floats, decoded, random_rows
from tests.support.panels import content

SUPER = 256  # columns of the largest blocks
SHAPES = [(1, SUPER), (37, 2 * SUPER), (16 * 7, 3 * SUPER)]


def assert_same_bits(values: Floats, expected: Floats) -> None:
    assert values.shape == expected.shape
    different = np.argwhere(values.view(np.uint32) != expected.view(np.uint32))
    assert not different.size, f"{len(different)} differ, the first at {different[0]}"


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(("n_out", "n_in"), SHAPES)
@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.usefixtures("isa")
def test_weights_are_those_of_the_reference_bit_for_bit(
    name: str, n_out: int, n_in: int, extreme: bool
) -> None:
    rows = random_rows(name, n_out, n_in, extreme=extreme)
    expected = decoded(rows)
    for format_ in (EXACT_FORMATS[name], "float32"):
        for is_woven in (False, True):
            matrix = pack([rows], format_, gated=False, is_woven=is_woven)
            assert_same_bits(content(matrix), expected)


@pytest.mark.parametrize("n_in", [32, 96, 608])
@pytest.mark.parametrize("name", [name for name in BLOCK_TYPES if READ[name].columns == 32])
def test_rows_of_small_blocks_have_any_number_of_them(name: str, n_in: int) -> None:
    rows = random_rows(name, 35, n_in)
    for format_ in (EXACT_FORMATS[name], "float32"):
        matrix = pack([rows], format_, gated=False, is_woven=True)
        assert_same_bits(content(matrix), decoded(rows))


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_panels_have_as_many_bytes_as_the_file(name: str) -> None:
    n_bytes = matrix_bytes(EXACT_FORMATS[name], 48, 3 * SUPER)
    in_file = 48 * READ[name].row_bytes(3 * SUPER)
    if name == "Q3_K":  # in the format of Q6_K
        assert n_bytes > in_file
    else:
        assert n_bytes == in_file


def test_every_type_that_is_read_has_a_format_and_every_format_a_type() -> None:
    assert EXACT_FORMATS.keys() == READ.keys()
    assert set(GGUF_FORMATS) <= set(EXACT_FORMATS.values())


@pytest.mark.parametrize("format_", ["bfloat16", "8bit", "6bit", "5bit", "4bit"])
@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K"])
def test_another_format_rounds_the_decoded_weights(name: str, format_: str) -> None:
    rows = random_rows(name, 37, SUPER)
    importance = np.random.default_rng(1).lognormal(0, 1, SUPER).astype(np.float32)
    packed, expected = (
        pack([part], format_, gated=False, is_woven=False, importance=importance)
        for part in (rows, decoded(rows))
    )
    assert np.array_equal(packed.panels, expected.panels)


@pytest.mark.parametrize("name", BLOCK_TYPES)
def test_parts_are_stacked_or_take_turns(name: str) -> None:
    parts = [random_rows(name, 35, SUPER, seed=seed) for seed in (1, 2)]
    stacked = pack(parts, EXACT_FORMATS[name], gated=False, is_woven=False)
    assert_same_bits(content(stacked), np.concatenate([decoded(part) for part in parts]))
    gated = pack(parts, EXACT_FORMATS[name], gated=True, is_woven=False)
    padded = [np.pad(part.rows, ((0, -35 % 16), (0, 0))) for part in parts]
    turns = np.stack([part.reshape(3, 16, -1) for part in padded], axis=1)
    rows = BlockRows(READ[name], turns.reshape(96, -1))
    expected = pack([rows], EXACT_FORMATS[name], gated=False, is_woven=False)
    assert np.array_equal(content(gated)[:35], content(expected)[:35])
    assert gated.panels.size == expected.panels.size


def test_rows_come_from_anywhere() -> None:
    rows = random_rows("Q4_K", 40, SUPER)
    every_second = BlockRows(rows.type, rows.rows[::2])
    matrix = pack([every_second], "q4_k", gated=False, is_woven=False)
    assert_same_bits(content(matrix), decoded(rows)[::2])


def test_parts_of_several_types_become_floats() -> None:
    parts = [random_rows("Q4_K", 20, SUPER), random_rows("Q6_K", 20, SUPER)]
    floats = np.ones((3, SUPER), np.float16)
    matrix = pack([*parts, floats], "float32", gated=False, is_woven=False)
    expected = [*(decoded(part) for part in parts), floats.astype(np.float32)]
    assert_same_bits(content(matrix), np.concatenate(expected))


@pytest.mark.parametrize(
    "part", [random_rows("Q4_0", 16, SUPER), np.ones((16, SUPER), np.float32)], ids=["Q4_0", "F32"]
)
def test_a_format_of_one_type_takes_no_other(part: BlockRows | Floats) -> None:
    with pytest.raises(ValueError, match="iq4_xs holds no weights of"):
        pack([part], "iq4_xs", gated=False, is_woven=False)


@pytest.mark.parametrize("bad", [0x7C00, 0xFC00, 0x7E01])  # infinities and NaN of float16
@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.usefixtures("isa")
def test_a_block_whose_scale_is_no_number_is_refused_with_its_place(name: str, bad: int) -> None:
    row, column = 18, SUPER
    for at in HALVES[name] or (0,):
        rows = random_rows(name, 40, 2 * SUPER)
        block = column // rows.type.columns * rows.type.n_bytes
        broken = [255] if name == "MXFP4" else [bad & 0xFF, bad >> 8]
        rows.rows[row, block + at : block + at + len(broken)] = broken
        for format_ in (EXACT_FORMATS[name], "float32", "8bit"):
            with pytest.raises(NotFiniteError) as error:
                pack([rows], format_, gated=False, is_woven=False)
            assert error.value.index == (row, column)


@pytest.mark.parametrize("name", BLOCK_TYPES)
@pytest.mark.usefixtures("isa")
def test_any_bytes_are_the_same_weights_or_are_refused_at_the_same_place(name: str) -> None:
    type_, rng = READ[name], np.random.default_rng(0)
    n_refused = 0
    for _ in range(12):
        rows = BlockRows(type_, rng.integers(0, 256, (20, type_.row_bytes(SUPER)), np.uint8))
        exact, floats = (weights_or_place(rows, each) for each in (EXACT_FORMATS[name], "float32"))
        if isinstance(exact, tuple) or isinstance(floats, tuple):
            assert exact == floats
            n_refused += 1
        else:
            assert_same_bits(exact, floats)
            assert np.isfinite(floats).all()
    assert n_refused


def weights_or_place(rows: BlockRows, format_: str) -> Floats | tuple[int, ...]:
    try:
        return content(pack([rows], format_, gated=False, is_woven=False))
    except NotFiniteError as error:
        return error.index


@pytest.mark.usefixtures("isa")
def test_a_code_of_minus_128_stays_exact() -> None:
    rows = random_rows("Q8_0", 16, 64)
    rows.rows.reshape(16, 2, 34)[..., 2:] = 128
    scales = np.ascontiguousarray(rows.rows.reshape(16, 2, 34)[..., :2]).view(np.float16)
    expected = np.repeat(scales[..., 0].astype(np.float32) * np.float32(-128), 32, axis=1)
    assert_same_bits(content(pack([rows], "8bit", gated=False, is_woven=False)), expected)
