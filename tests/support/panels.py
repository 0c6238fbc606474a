"""Matrices in panels for tests: packed by native code, read back by plain numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.device.arguments import Embed
from engine.device.cpu.matrix import PanelMatrix
from engine.device.cpu.program import CpuProgram
from engine.device.step import StepState
from engine.native import _cpu
from engine.native.cpu import address

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

ROWS, COLUMNS = 16, 32
BLOCK_BYTES = {"F32": 2048, "BF16": 1024, "Q8": 544, "Q6": 448, "Q5": 384, "Q4": 320}
LAYOUTS = tuple(BLOCK_BYTES)
CODE_BITS = {"Q8": 8, "Q6": 6, "Q5": 5, "Q4": 4}
WOVEN = 4  # panels whose blocks take turns
_SOURCES = {"float32": "F32", "float16": "F16", "uint16": "BF16"}


def as_float32(stored: npt.NDArray[Any]) -> Floats:
    """Weights as stored: float32, float16, or bfloat16 as uint16."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def as_bfloat16(values: Floats) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest, ties to even; for finite values."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def row_addresses(weights: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The bytes of the rows (n_out, n_in), with zeros up to a whole panel."""
    rows = address(weights) + weights.strides[0] * np.arange(len(weights), dtype=np.int64)
    return np.pad(rows, (0, -len(rows) % ROWS))


def pack_rows(
    rows: npt.NDArray[np.int64],
    source: str,
    n_in: int,
    layout: str,
    *,
    is_woven: bool = False,
    importance: Floats | None = None,
) -> tuple[Bytes, tuple[int, int]]:
    """The panels, and the index of the first weight that is not finite."""
    n_panels, n_blocks = len(rows) // ROWS, -(-n_in // COLUMNS)
    panels = np.full(n_panels * n_blocks * BLOCK_BYTES[layout], 0xEE, np.uint8)
    bad = _cpu.pack(
        rows=address(rows),
        source=getattr(_cpu.SourceType, source),
        n_in=n_in,
        layout=getattr(_cpu.Layout, layout),
        is_woven=is_woven,
        panels=address(panels),
        n_panels=n_panels,
        begin_panel=0,
        end_panel=n_panels,
        importance=address(importance),
    )
    return panels, bad


def pack(
    weights: npt.NDArray[Any],
    layout: str,
    *,
    is_woven: bool = False,
    importance: Floats | None = None,
) -> Bytes:
    """The panels of weights (n_out, n_in), all finite."""
    source, rows = _SOURCES[weights.dtype.name], row_addresses(weights)
    panels, bad = pack_rows(
        rows, source, weights.shape[1], layout, is_woven=is_woven, importance=importance
    )
    assert bad[0] == -1
    return panels


def content(matrix: PanelMatrix) -> Floats:
    """The weights (n_out, n_in) of a matrix, read by the embedding op: no layout is known here."""
    program, out = CpuProgram(matrix.n_out), np.empty((matrix.n_out, matrix.n_in), np.float32)
    program.append(Embed(table=matrix, out=out))
    state = StepState(matrix.n_out)
    state.set(range(matrix.n_out), 0)
    assert program.run(state)
    return out


def woven(panels: Bytes, layout: str, n_in: int) -> Bytes:
    """Panels that follow each other, in the order in which four of them take turns."""
    blocks = panels.reshape(-1, -(-n_in // COLUMNS), BLOCK_BYTES[layout])
    bundles = [blocks[first : first + WOVEN] for first in range(0, len(blocks), WOVEN)]
    return np.concatenate([bundle.transpose(1, 0, 2).ravel() for bundle in bundles])


def unpack(panels: Bytes, layout: str, n_out: int, n_in: int) -> Floats:
    """The weights (n_out, n_in) that panels stand for, as csrc/layout.h describes them."""
    n_panels, n_blocks = -(-n_out // ROWS), -(-n_in // COLUMNS)
    blocks = panels.reshape(n_panels, n_blocks, BLOCK_BYTES[layout])
    if layout == "F32":
        lanes = blocks.view(np.float32).reshape(n_panels, n_blocks, COLUMNS, ROWS)
        values = lanes.transpose(0, 3, 1, 2)
    elif layout == "BF16":
        pairs = blocks.view(np.uint16).reshape(n_panels, n_blocks, COLUMNS // 2, ROWS, 2)
        values = as_float32(pairs.transpose(0, 3, 1, 2, 4))
    else:
        codes, scales, minima = codes_of(blocks, layout)
        values = codes * scales.astype(np.float32) + minima.astype(np.float32)
    return np.ascontiguousarray(values).reshape(n_panels * ROWS, -1)[:n_out, :n_in]


def codes_of(
    blocks: Bytes, layout: str
) -> tuple[Floats, npt.NDArray[np.float16], npt.NDArray[np.float16]]:
    """Codes (panels, rows, blocks, columns), and scales and minima (panels, rows, blocks, 1)."""
    n_panels, n_blocks, _ = blocks.shape
    n_code_bytes = ROWS * COLUMNS * CODE_BITS[layout] // 8
    lines = blocks[..., :n_code_bytes].reshape(n_panels, n_blocks, -1, 4 * ROWS)
    groups = stored_groups(lines, layout).astype(np.float32)
    if layout == "Q8":
        groups -= 128
    codes = groups.reshape(n_panels, n_blocks, 8, ROWS, 4).transpose(0, 3, 1, 2, 4)
    halves = np.ascontiguousarray(blocks[..., n_code_bytes:]).view(np.float16)
    scales = halves[..., :ROWS].transpose(0, 2, 1)[..., None]
    minima = halves[..., ROWS:].transpose(0, 2, 1)[..., None] if layout != "Q8" else 0 * scales
    return codes.reshape(n_panels, ROWS, n_blocks, COLUMNS), scales, minima


def stored_groups(lines: Bytes, layout: str) -> Bytes:
    """The codes of the 8 groups of blocks (..., groups, 64), as their lines hold them."""
    if layout == "Q8":
        return lines
    each = np.moveaxis(lines, -2, 0)
    if layout == "Q4":
        groups = [half for line in each for half in (line & 15, line >> 4)]
    elif layout == "Q6":
        groups = []
        for a, b, c in (each[:3], each[3:]):
            groups += [a & 63, b & 63, c & 63, a >> 6 << 4 | b >> 6 << 2 | c >> 6]
    else:
        a, b, c, d, e = each
        last = (b >> 5 & 1) << 1 | d >> 5 & 1
        upper = [a >> 5 << 2 | b >> 6, c >> 5 << 2 | d >> 6, e >> 5 << 2 | last]
        groups = [a & 31, b & 31, upper[0], c & 31, d & 31, upper[1], e & 31, upper[2]]
    return np.stack(groups, axis=-2)
