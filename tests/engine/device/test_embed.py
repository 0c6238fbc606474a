"""The native embedding op: every layout that a table can have, read row by row."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.device.step import StepState
from engine.native import _cpu
from engine.native._cpu import Layout
from engine.native.cpu import address

Floats = npt.NDArray[np.float32]
Table = tuple[npt.NDArray[Any], Floats]

VOCAB = 21  # the last panel is not full
IDS = (0, 20, 15, 16, 7, 7)


@pytest.fixture(params=[1, 2, 3])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _cpu.threads()
    _cpu.set_threads(request.param)
    yield
    _cpu.set_threads(before)


def padded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(panels, 16, blocks, 32), filled up with zeros."""
    rows, columns = -values.shape[0] % 16, -values.shape[1] % 32
    filled = np.pad(values, ((0, rows), (0, columns)))
    return filled.reshape(filled.shape[0] // 16, 16, -1, 32)


def scales(dim: int, seed: int) -> npt.NDArray[np.float16]:
    """One number per row and block, some of them so small that float16 has them subnormal."""
    shape = (-(-VOCAB // 16), 16, -(-dim // 32))
    numbers = np.random.default_rng(seed).uniform(-1, 1, shape)
    numbers[:, 1] *= 2.0**-20
    numbers[:, 2] = 0
    return numbers.astype(np.float16)


def f32_panels(dim: int) -> Table:
    values = np.random.default_rng(0).standard_normal((VOCAB, dim), dtype=np.float32)
    return padded(values).transpose(0, 2, 3, 1).copy(), values


def bf16_panels(dim: int) -> Table:
    bits = np.random.default_rng(0).integers(0, 0x7F00, (VOCAB, dim)).astype(np.uint16)
    pairs = padded(bits).reshape(-(-VOCAB // 16), 16, -(-dim // 32), 16, 2)
    return pairs.transpose(0, 2, 3, 1, 4).copy(), (bits.astype(np.uint32) << 16).view(np.float32)


def q8_panels(dim: int) -> Table:
    codes = padded(np.random.default_rng(0).integers(-127, 128, (VOCAB, dim)))
    scale = scales(dim, 1)
    n_panels, _, n_blocks, _ = codes.shape
    groups = (codes + 128).astype(np.uint8).reshape(n_panels, 16, n_blocks, 8, 4)
    parts = [
        groups.transpose(0, 2, 3, 1, 4).reshape(n_panels, n_blocks, -1),
        scale.transpose(0, 2, 1).copy().view(np.uint8),
    ]
    values = codes * scale[..., None].astype(np.float32)
    return np.concatenate(parts, axis=-1), rows_of(values, dim)


def panels_on_a_line(dim: int, bits: int, lines_of: Callable[..., list[Any]]) -> Table:
    """Codes, of whose 8 groups `lines_of` makes lines of 64 bytes, scales and minima."""
    codes = padded(np.random.default_rng(0).integers(0, 1 << bits, (VOCAB, dim)))
    scale, minimum = scales(dim, 1), scales(dim, 2)
    n_panels, _, n_blocks, _ = codes.shape
    groups = codes.astype(np.uint8).reshape(n_panels, 16, n_blocks, 8, 4)
    lines = np.stack(lines_of(*np.moveaxis(groups, 3, 0)), axis=3)
    parts = [
        lines.transpose(0, 2, 3, 1, 4).reshape(n_panels, n_blocks, -1),
        scale.transpose(0, 2, 1).copy().view(np.uint8),
        minimum.transpose(0, 2, 1).copy().view(np.uint8),
    ]
    products = codes * scale[..., None].astype(np.float32)
    return np.concatenate(parts, axis=-1), rows_of(products + minimum[..., None], dim)


def q6_panels(dim: int) -> Table:
    def lines(a: Any, b: Any, c: Any, d: Any, *rest: Any) -> list[Any]:
        first = [a | d >> 4 << 6, b | d >> 2 << 6, c | d << 6]
        return first + (lines(*rest) if rest else [])

    return panels_on_a_line(dim, 6, lines)


def q5_panels(dim: int) -> Table:
    def lines(a: Any, b: Any, ab: Any, c: Any, d: Any, cd: Any, e: Any, bde: Any) -> list[Any]:
        return [
            a | ab >> 2 << 5,
            b | ab << 6 | (bde >> 1 & 1) << 5,
            c | cd >> 2 << 5,
            d | cd << 6 | (bde & 1) << 5,
            e | bde >> 2 << 5,
        ]

    return panels_on_a_line(dim, 5, lines)


def q4_panels(dim: int) -> Table:
    def lines(a: Any, b: Any, *rest: Any) -> list[Any]:
        return [a | b << 4, *(lines(*rest) if rest else [])]

    return panels_on_a_line(dim, 4, lines)


def rows_of(values: npt.NDArray[Any], dim: int) -> Floats:
    n_panels, _, n_blocks, _ = values.shape
    rows = values.reshape(n_panels * 16, n_blocks * 32)[:VOCAB, :dim]
    return rows.astype(np.float32)


def embedded(
    table: npt.NDArray[Any], dim: int, layout: Layout, *, is_woven: bool = False
) -> Floats:
    out = np.full((len(IDS) + 1, dim), np.nan, np.float32)
    state = StepState(len(IDS))
    state.set(IDS, 5)
    tape = _cpu.Tape()
    matrix = _cpu.Matrix(
        panels=address(table), n_out=VOCAB, n_in=dim, layout=layout, is_woven=is_woven
    )
    tape.embed(table=matrix, out=address(out))
    assert tape.run(address(state.words)) == 1
    assert np.isnan(out[-1]).all(), "nothing may be written after the rows"
    return out[:-1]


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dim", [32, 2, 100, 288])
@pytest.mark.parametrize(
    ("layout", "make"),
    [
        (Layout.F32, f32_panels),
        (Layout.BF16, bf16_panels),
        (Layout.Q8, q8_panels),
        (Layout.Q6, q6_panels),
        (Layout.Q5, q5_panels),
        (Layout.Q4, q4_panels),
    ],
    ids=["f32", "bf16", "q8", "q6", "q5", "q4"],
)
def test_panels(layout: Layout, make: Callable[[int], Table], dim: int) -> None:
    table, values = make(dim)
    assert np.array_equal(embedded(table, dim, layout), values[list(IDS)])
