"""Matrices in device memory, as the CUDA kernels read them, and back as rows of numbers.

Owns the layouts that csrc/cuda/layout.h describes, and the rounding to codes, all in torch on the
device of the parts. Knows no model and no checkpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops import NotFiniteError

FORMATS = ("bfloat16", "8bit", "4bit")

_LAYOUTS = {"bfloat16": "BF16", "8bit": "Q8", "4bit": "Q4", "mxfp4": "MXFP4"}
_PANEL_ROWS, _BLOCK_COLUMNS = 16, 64
_CODE_BYTES = {"8bit": 1024, "4bit": 512}  # per block; its scales follow
_BLOCK_BYTES = {"8bit": 1056, "4bit": 576, "mxfp4": 544}
# The middles between the sizes that a code of mxfp4 has: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
_FP4_BOUNDS = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)

# Weights rounded at a time; temporaries take about thirty bytes each.
_CHUNK = 2**22
# Shares of a group's range that are tried cut off at either end: outliers lose a little, and the
# steps become finer.
_CUT_OFF = (0.0, 0.06, 0.12)
# How often scale and minimum are fitted to the codes that they lead to.
_FITS = 3


@dataclass(frozen=True, slots=True)
class CudaMatrix:
    """A matrix (n_out, n_in), as csrc/cuda/layout.h describes it."""

    weights: Tensor
    """bfloat16: (n_out, padded n_in); otherwise bytes (n,)."""
    n_out: int
    n_in: int
    format: str
    gated: bool
    """Whether it is gate and up, each beginning in a new panel."""
    kernels: ModuleType = field(repr=False, compare=False)

    @property
    def n_bytes(self) -> int:
        return self.weights.nbytes

    @property
    def layout(self) -> Any:
        """As csrc/cuda/ops.h names it."""
        return getattr(self.kernels.Layout, _LAYOUTS[self.format])

    def place(self) -> dict[str, Any]:
        """The fields of struct Matrix in csrc/cuda/ops.h."""
        return {
            "weights": self.weights.data_ptr(),
            "n_out": self.n_out,
            "n_in": self.n_in,
            "layout": self.layout,
        }


def matrix_bytes(format_: str, n_out: int, n_in: int) -> int:
    """Bytes of a matrix (n_out, n_in); for gate and up, of one of the two."""
    n_blocks = -(-n_in // _BLOCK_COLUMNS)
    if format_ == "bfloat16":
        return n_out * n_blocks * _BLOCK_COLUMNS * 2
    return -(-n_out // _PANEL_ROWS) * n_blocks * _BLOCK_BYTES[format_]


def pack(
    parts: Sequence[Tensor], format_: str, kernels: ModuleType, *, gated: bool = False
) -> CudaMatrix:
    """The parts (n, n_in), floats on one device, one below the other; `gated`: they are gate and
    up. Raises NotFiniteError.
    """
    _check_finite(parts)
    n_out, n_in = sum(len(part) for part in parts), parts[0].shape[1]
    write = _pad_rows if format_ == "bfloat16" else _quantize
    weights = write(parts, n_in, format_, gated)
    return CudaMatrix(weights, n_out, n_in, format_, gated, kernels)


def rows(matrix: CudaMatrix, begin: int, end: int, out: Tensor) -> None:
    """Writes rows `begin` to `end` into `out`, bfloat16 (end - begin, n_in), contiguous; decoded
    codes are rounded.
    """
    if matrix.format == "bfloat16":
        out.copy_(matrix.weights[begin:end, : matrix.n_in])
        return
    matrix.kernels.unpack(
        **matrix.place(),
        gated=matrix.gated,
        begin=begin,
        end=end,
        out=out.data_ptr(),
        stream=torch.cuda.current_stream(out.device).cuda_stream if out.is_cuda else 0,
    )


def gather(matrix: CudaMatrix, indices: Tensor, out: Tensor) -> None:
    """Writes the rows that int64 `indices` (n,) name into `out`, float32 (n, n_in)."""
    if matrix.format == "bfloat16":
        out.copy_(matrix.weights[indices, : matrix.n_in])
        return
    codes, scales, minima = _codes_of(matrix, _storage_rows(matrix, indices))
    values = codes.float() * scales.float() + minima.float()  # (n, blocks, columns)
    out.copy_(values.flatten(1)[:, : matrix.n_in])


def _check_finite(parts: Sequence[Tensor]) -> None:
    first = 0
    for part in parts:
        if not part.isfinite().all():
            row, column = torch.nonzero(~part.isfinite())[0].tolist()
            raise NotFiniteError((first + row, column))
        first += len(part)


def _pad_rows(parts: Sequence[Tensor], n_in: int, format_: str, gated: bool) -> Tensor:
    n_out, width = sum(len(part) for part in parts), -(-n_in // _BLOCK_COLUMNS) * _BLOCK_COLUMNS
    weights = torch.zeros(n_out, width, dtype=torch.bfloat16, device=parts[0].device)
    first = 0
    for part in parts:
        weights[first : first + len(part), :n_in] = part
        first += len(part)
    return weights


def _quantize(parts: Sequence[Tensor], n_in: int, format_: str, gated: bool) -> Tensor:
    """The panels, one after the other, as bytes (n,)."""
    lengths = [len(part) for part in parts]
    n_rows = sum(_whole_panels(n) for n in lengths) if gated else _whole_panels(sum(lengths))
    n_blocks = -(-n_in // _BLOCK_COLUMNS)
    panels = torch.empty(
        n_rows // _PANEL_ROWS,
        n_blocks,
        _BLOCK_BYTES[format_],
        dtype=torch.uint8,
        device=parts[0].device,
    )
    row_of = _row_reader(parts, gated)
    step = max(_CHUNK // (n_blocks * _BLOCK_COLUMNS * _PANEL_ROWS), 1) * _PANEL_ROWS
    write = {"8bit": _write_8bit, "4bit": _write_4bit, "mxfp4": _write_mxfp4}[format_]
    for begin in range(0, n_rows, step):
        end = min(begin + step, n_rows)
        padded = F.pad(row_of(begin, end), (0, n_blocks * _BLOCK_COLUMNS - n_in))
        groups = padded.view(-1, _PANEL_ROWS, n_blocks, _BLOCK_COLUMNS)
        write(groups, panels[begin // _PANEL_ROWS : end // _PANEL_ROWS])
    return panels.view(-1)


def _whole_panels(n_rows: int) -> int:
    return -(-n_rows // _PANEL_ROWS) * _PANEL_ROWS


def _row_reader(parts: Sequence[Tensor], gated: bool) -> Callable[[int, int], Tensor]:
    """A function that gives float32 rows `begin` to `end` in panel order, zeros for padding."""
    places = []
    first = 0
    for part in parts:
        places.append((first, part))
        first += _whole_panels(len(part)) if gated else len(part)

    def read(begin: int, end: int) -> Tensor:
        result = torch.zeros(end - begin, parts[0].shape[1], device=parts[0].device)
        for start, part in places:
            low, high = max(begin, start), min(end, start + len(part))
            if low < high:
                result[low - begin : high - begin] = part[low - start : high - start]
        return result

    return read


def _write_8bit(groups: Tensor, panels: Tensor) -> None:
    """groups float32 (panels, 16, blocks, 64) into panels (panels, blocks, bytes)."""
    scales = _as_half(groups.abs().amax(-1) / 127)
    codes = _rounded(groups, scales.float(), None).clamp_(-127, 127)
    lanes = _lanes((codes + 128).to(torch.uint8))
    # A block is (side, g, t, half, i).
    panels[..., :1024] = lanes.permute(0, 3, 5, 2, 4, 1, 6).flatten(2)
    panels[..., 1024:] = _bytes(scales.transpose(1, 2))


def _lanes(codes: Tensor) -> Tensor:
    """Codes (panel, 16, block, 64) as (panel, half, g, block, t, side, i): a lane has the rows g
    and g + 8, and 16 columns, 8 on either side.
    """
    n_panels, _, n_blocks, _ = codes.shape
    return codes.view(n_panels, 2, 8, n_blocks, 4, 2, 8)


def _write_mxfp4(groups: Tensor, panels: Tensor) -> None:
    """The same, exactly for numbers that were codes times a power of two in 32 columns."""
    halves = groups.view(*groups.shape[:-1], 2, 32)
    # The largest number of 32 is 4 to 8 times the scale.
    exponents = (torch.frexp(halves.abs().amax(-1)).exponent - 3).clamp_(-126, 127)
    sizes = torch.ldexp(halves.abs(), -exponents.unsqueeze(-1))
    bounds = torch.tensor(_FP4_BOUNDS, device=groups.device)
    codes = torch.bucketize(sizes, bounds) + 8 * halves.signbit()
    _write_nibbles(codes.flatten(-2), panels)
    # (panel, row, block, 2) to (panel, block, row, 2).
    panels[..., 512:] = (exponents + 127).to(torch.uint8).transpose(1, 2).flatten(2)


def _write_nibbles(codes: Tensor, panels: Tensor) -> None:
    lanes = _lanes(codes.to(torch.uint8))
    pairs = lanes[..., 0, :] | lanes[..., 1, :] << 4
    # A block is (g, t, half, i).
    panels[..., :512] = pairs.permute(0, 3, 2, 4, 1, 5).flatten(2)


def _write_4bit(groups: Tensor, panels: Tensor) -> None:
    codes, scales, minima = _four_bits(groups)
    _write_nibbles(codes, panels)
    both = torch.stack([scales, minima], dim=-1)  # (panel, row, block, 2)
    panels[..., 512:] = _bytes(both.transpose(1, 2).flatten(2))


def _four_bits(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes 0..15 as float32 (..., 64), scales and minima as float16 (...): a few parts of each
    group's range are fitted by least squares, and the one with the least squared error wins.
    """
    low, high = groups.aminmax(dim=-1)
    middle = groups.mean(-1)
    best = (torch.zeros_like(groups), *(torch.zeros_like(low, dtype=torch.float16),) * 2)
    least = groups.square().sum(-1)  # the error of all zeros
    for below, above in product(_CUT_OFF, repeat=2):
        minima = low + (high - low) * below
        scales = (high - low) * ((1 - below - above) / 15)
        for _ in range(_FITS):
            codes = _rounded(groups, scales, minima).clamp_(0, 15)
            mean = codes.mean(-1)
            centred = codes - mean.unsqueeze(-1)
            slope = (centred * groups).sum(-1) / centred.square().sum(-1).clamp_min_(0.5)
            scales = _as_half(slope).float()
            minima = _as_half(middle - scales * mean).float()
        codes = _rounded(groups, scales, minima).clamp_(0, 15)
        fitted = codes * scales.unsqueeze(-1) + minima.unsqueeze(-1)
        error = (fitted - groups).square_().sum(-1)
        is_better = error < least
        least = torch.where(is_better, error, least)
        best = (
            torch.where(is_better.unsqueeze(-1), codes, best[0]),
            torch.where(is_better, scales.half(), best[1]),
            torch.where(is_better, minima.half(), best[2]),
        )
    return best


def _rounded(groups: Tensor, scales: Tensor, minima: Tensor | None) -> Tensor:
    """(groups - minima) / scales, to the nearest integer; 0 where the scale is 0."""
    inverse = torch.where(scales > 0, 1 / scales, 0.0).unsqueeze(-1)
    above = groups if minima is None else groups - minima.unsqueeze(-1)
    return (above * inverse).round_()


def _as_half(values: Tensor) -> Tensor:
    largest = torch.finfo(torch.float16).max
    return values.clamp(-largest, largest).half()


def _bytes(halves: Tensor) -> Tensor:
    return halves.contiguous().view(torch.uint8)


def _storage_rows(matrix: CudaMatrix, indices: Tensor) -> Tensor:
    """The rows of the panels that hold these rows of the matrix."""
    if not matrix.gated:
        return indices
    half = matrix.n_out // 2
    return indices + (indices >= half) * (_whole_panels(half) - half)


def _codes_of(matrix: CudaMatrix, storage_rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (n, blocks, 64), scales and minima (n, blocks, 1) of these rows."""
    format_ = matrix.format
    n_blocks, n_code_bytes = -(-matrix.n_in // _BLOCK_COLUMNS), _CODE_BYTES[format_]
    blocks = matrix.weights.view(-1, n_blocks, _BLOCK_BYTES[format_])
    panel, row = storage_rows // _PANEL_ROWS, storage_rows % _PANEL_ROWS
    half, g = row // 8, row % 8
    packed, halves = blocks[..., :n_code_bytes], blocks[..., n_code_bytes:].view(torch.float16)
    if format_ == "8bit":
        shares = packed.view(*packed.shape[:2], 2, 8, 4, 2, 8)  # side, g, t, half, i of a block
        codes = shares[panel, :, :, g, :, half].transpose(2, 3).to(torch.int16) - 128
        scales = halves[panel, :, row]
        return codes.flatten(2), scales.unsqueeze(-1), torch.zeros_like(scales).unsqueeze(-1)
    pairs = packed.view(*packed.shape[:2], 8, 4, 2, 8)[panel, :, g, :, half]  # (n, block, t, i)
    codes = torch.stack([pairs & 15, pairs >> 4], dim=3)
    both = halves.view(*halves.shape[:2], _PANEL_ROWS, 2)[panel, :, row]
    return codes.flatten(2), both[..., :1], both[..., 1:]
