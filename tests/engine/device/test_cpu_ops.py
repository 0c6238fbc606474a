"""Weights in native memory, and the native ops against their twins in torch on the same weights.

What a packed matrix holds is read back through the embedding op, so no test knows the layout.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.device.arguments import Embed, Linear, Matrix, NormLinear
from engine.device.cpu.matrix import PanelMatrix
from engine.device.cpu.memory import LARGE_PAGE, LargePages, ReadMemory
from engine.device.cpu.ops import FORMATS, CpuOps
from engine.device.formats import QUANTIZED
from engine.device.ops import NotFiniteError, Ops
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.native import _cpu
from engine.native.cpu import address

Floats = npt.NDArray[np.float32]
EPS = 1e-5


def random(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """Bit patterns; cut off, not rounded."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded_to_bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()


def panels_of(matrix: Matrix) -> npt.NDArray[np.uint8]:
    assert isinstance(matrix, PanelMatrix)
    return matrix.panels


def content(ops: CpuOps, matrix: Matrix, n_rows: int | None = None) -> Floats:
    """The first rows of a packed matrix, as numbers."""
    n_rows = n_rows or matrix.n_out
    program, out = ops.program(n_rows), np.empty((n_rows, matrix.n_in), np.float32)
    program.append(Embed(table=matrix, out=out))
    state = StepState(n_rows)
    state.set(range(n_rows), 0)
    assert program.run(state)
    return out


SHAPES = [((5, 32),), ((16, 33), (3, 33), (21, 33)), ((40, 96), (40, 96))]


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_unquantised_matrices_hold_their_parts_exactly(shapes: Any) -> None:
    for n_threads in (1, 2):
        _cpu.set_threads(n_threads)
        parts = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
        ops = CpuOps("float32")
        assert np.array_equal(content(ops, ops.matrix(parts, "float32")), np.concatenate(parts))

        halves = [part.astype(np.float16) for part in parts]
        expected = np.concatenate(halves).astype(np.float32)
        assert np.array_equal(content(ops, ops.matrix(halves, "float32")), expected)

        bits = [bfloat16(part) for part in parts]
        expected = from_bfloat16(np.concatenate(bits))
        for format_ in ("bfloat16", "float32"):
            assert np.array_equal(content(ops, ops.matrix(bits, format_)), expected)
        rounded = torch.from_numpy(np.concatenate(parts)).bfloat16().float().numpy()
        assert np.array_equal(content(ops, ops.matrix(parts, "bfloat16")), rounded)


@pytest.mark.usefixtures("isa")
# Half a step, which in 6 and 5 bits may be longer so that others err less; in 4 bits also what may
# be cut off either end of the range, which is twice as long as the largest weight at most.
@pytest.mark.parametrize(
    ("format_", "share"),
    [("8bit", 0.5 / 127), ("6bit", 1 / 32), ("5bit", 1 / 16), ("4bit", 0.5 / 7.5 + 0.24)],
)
def test_quantised_weights_are_near(format_: str, share: float) -> None:
    values = random(50, 100)
    values[3] *= 1e-3
    values[4] = 0
    values[5, :32] = 7.0
    ops = CpuOps(format_)
    halves, bits = values.astype(np.float16), bfloat16(values)
    stored: list[tuple[npt.NDArray[Any], Floats]] = [
        (values, values),
        (halves, halves.astype(np.float32)),
        (bits, from_bfloat16(bits)),
    ]
    for part, exact in stored:
        held = content(ops, ops.matrix([part], format_))
        blocks = np.pad(exact, ((0, 0), (0, 28))).reshape(50, 4, 32)
        largest = np.abs(blocks).max(axis=2).repeat(32, axis=1)[:, :100]
        # And what the rounding of scale and minimum to float16 adds at the far end.
        assert (np.abs(held - exact) <= largest * (share + 2.0**-9) + 1e-7).all()
        assert (held[4] == 0).all()


@pytest.mark.parametrize("format_", FORMATS)
def test_parts_of_several_stored_types_fit_together(format_: str) -> None:
    ops, parts = CpuOps(format_), [random(20, 64), random(12, 64, seed=1)]
    exact = from_bfloat16(bfloat16(parts[0])), parts[1].astype(np.float16).astype(np.float32)
    mixed = ops.matrix([bfloat16(parts[0]), parts[1].astype(np.float16)], format_)
    assert np.array_equal(content(ops, mixed), content(ops, ops.matrix(exact, format_)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format_", FORMATS)
def test_weights_that_are_no_numbers_are_found(format_: str, value: float) -> None:
    ops, parts = CpuOps(format_), [random(20, 64), random(20, 64, seed=1)]
    parts[1][17, 33] = value
    for gated in (False, True):
        with pytest.raises(NotFiniteError) as caught:
            ops.matrix(parts, format_, gated=gated)
        assert caught.value.index == (37, 33)
    with pytest.raises(NotFiniteError) as caught:
        ops.vector([np.zeros(3, np.float32), np.array([0, value], np.float32)])
    assert caught.value.index == (4,)


def test_vectors_become_float32() -> None:
    stored = bfloat16(random(7)), random(5).astype(np.float16)
    expected = np.concatenate([from_bfloat16(stored[0]), stored[1].astype(np.float32)])
    vector = CpuOps("8bit").vector(stored)
    assert vector.dtype == np.float32
    assert np.array_equal(vector, expected)


def quantised(x: Floats) -> Floats:
    """Activations as an 8-bit product sees them: codes of blocks of 32, times their scale."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % 32))).reshape(len(x), -1, 32)
    scale = (np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)).astype(np.float32)
    codes = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    values: Floats = (codes * scale).reshape(len(x), -1)[:, : x.shape[1]]
    return values


def seen(format_: str, x: Floats) -> npt.NDArray[np.float64]:
    return (quantised(x) if format_ in QUANTIZED else x).astype(np.float64)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("n_rows", [1, 3, 16, 45])
@pytest.mark.parametrize(("n_out", "n_in"), [(16, 32), (5, 7), (100, 200), (33, 64)])
@pytest.mark.parametrize("format_", FORMATS)
def test_linear(format_: str, n_out: int, n_in: int, n_rows: int) -> None:
    ops = CpuOps(format_)
    matrix, x, bias = ops.matrix([random(n_out, n_in)], format_), random(50, n_in), random(n_out)
    product = seen(format_, x) @ content(ops, matrix).astype(np.float64).T
    for given_bias in (None, bias):
        out = np.full((50, n_out), np.nan, np.float32)
        program, state = ops.program(50), StepState(50)
        program.append(Linear(x=x, matrix=matrix, bias=given_bias, out=out))
        state.set([0] * n_rows, 0)
        assert program.run(state)
        expected = product if given_bias is None else product + bias
        np.testing.assert_allclose(
            out[:n_rows], expected[:n_rows], rtol=0, atol=1e-5 * np.abs(product).max()
        )
        assert np.isnan(out[n_rows:]).all(), "nothing may be written after the rows"


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("n_out", "n_in"), [(32, 32), (10, 7), (200, 100)])
@pytest.mark.parametrize("format_", FORMATS)
def test_norm_linear(format_: str, n_out: int, n_in: int, gated: bool) -> None:
    """Against the twin in torch, which gets exactly the weights of the packed matrix."""
    n_rows, ops, oracle = 19, CpuOps(format_), TorchOps("cpu", "float32")
    parts = np.split(random(n_out, n_in), 2)
    held = [content(ops, ops.matrix([part], format_)) for part in parts]
    matrix = ops.matrix(parts, format_, gated=gated)
    residual, norm, bias = random(n_rows, n_in), random(n_in) + 1, random(n_out)
    width = n_out // 2 if gated else n_out
    results = []
    both: list[tuple[Ops, Matrix]] = [(ops, matrix), (oracle, oracle.matrix(held, "float32"))]
    for which, weights in both:
        out = np.empty((n_rows, width), np.float32)
        arrays: list[Any] = [residual, norm, bias, out]
        if which is oracle:
            arrays = [torch.from_numpy(array) for array in arrays]
        program, state = which.program(n_rows), StepState(n_rows)
        program.append(
            NormLinear(
                residual=arrays[0],
                norm=arrays[1],
                eps=EPS,
                matrix=weights,
                bias=arrays[2],
                gated=gated,
                out=arrays[3],
            )
        )
        state.set([0] * n_rows, 0)
        assert program.run(state)
        results.append(out)
    out, expected = results
    # Of quantised formats the twin has the weights, but it does not quantise activations.
    slack = 0.03 if format_ in QUANTIZED else 2e-5
    np.testing.assert_allclose(out, expected, rtol=0, atol=slack * np.abs(expected).max())


def test_formats_without_native_code_are_refused() -> None:
    with pytest.raises(Exception, match="float16 needs torch"):
        CpuOps("float16")


def test_memory_begins_on_a_cache_line_and_is_zero() -> None:
    for dtype in ("float32", "bfloat16"):
        array = CpuOps("bfloat16").zeros((3, 5, 7), dtype)
        assert array.shape == (3, 5, 7)
        assert array.ctypes.data % 64 == 0
        assert not array.any()


def test_temporary_matrices_lie_where_those_before_them_did() -> None:
    ops = CpuOps("4bit", n_threads=1)
    layers = [random(96, 64, seed=seed) for seed in range(3)]
    kept, places = [], set()
    with ops.reader():
        for weights in layers:
            copies = [
                ops.matrix([half], "bfloat16", temporary=True) for half in np.split(weights, 2)
            ]
            for copy, half in zip(copies, np.split(weights, 2), strict=True):
                exact = from_bfloat16(rounded_to_bfloat16(half))
                np.testing.assert_array_equal(content(ops, copy), exact)
            places.add(tuple(address(panels_of(copy)) for copy in copies))
            kept.append(ops.matrix([weights], "float32"))
    assert len(places) == 1
    for matrix, weights in zip(kept, layers, strict=True):
        np.testing.assert_array_equal(content(ops, matrix), weights)


def test_pieces_of_several_slabs_lie_in_one_when_they_are_reused() -> None:
    pages, sizes = LargePages(), 3 * [40 * 2**20]
    first = [address(pages.take(n_bytes)) for n_bytes in sizes]
    assert sorted(first) != [first[0] + at for at in np.cumsum([0, *sizes[:-1]])]
    pages.reuse()
    for _ in range(2):
        begin, *others = (address(pages.take(n_bytes)) for n_bytes in sizes)
        assert others == [begin + at for at in np.cumsum(sizes[:-1])]
        pages.reuse()


def test_memory_that_was_worked_in_is_taken_next() -> None:
    pages = LargePages()
    pages.take(1000)
    ahead = pages.ahead(5000)
    assert address(pages.take(70)) == address(ahead)
    assert address(pages.ahead(10)) == address(ahead) + 128


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<f4"])
def test_what_is_read_stays_as_long_as_anything_refers_to_it(dtype: str) -> None:
    memory, n = ReadMemory(), LARGE_PAGE
    arrays = [memory.empty((n, 2), dtype) for _ in range(3)]
    places = [address(array) for array in arrays]
    assert len(set(places)) == 3
    rows = arrays[1][5:7, 1:].T.view(dtype)
    rows[:] = 7
    del arrays
    others = [memory.empty((n // 2, 2), dtype) for _ in range(3)]
    for other in others:
        other[:] = 9
    assert (rows == 7).all()
    taken = {address(other) for other in others}
    assert taken >= {places[0], places[2]}
    assert places[1] not in taken
    del rows
    assert address(memory.empty((n, 2), dtype)) == places[1]
