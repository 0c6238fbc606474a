"""Products of many rows on a CUDA device, and what stands around them.

Owns how they are computed: in bfloat16 with sums in float32, on tiles of the weights where these
are codes. Knows no op.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..formats import PANEL_ROWS
from . import weights as cuda_weights
from .activations import activation_of
from .lane import Lane
from .weights import CudaMatrix

TILE_BYTES = 64 * 2**20
"""Bytes of weights that are decoded at a time."""


def normed_rows(lane: Lane, residual: Tensor, norm: Tensor | None, eps: float, n: int) -> Tensor:
    """The first `n` rows, normed if there is a norm, as bfloat16."""
    if norm is None:
        return residual[:n].bfloat16()
    dim = residual.shape[1]
    normed = torch.empty((n, dim), dtype=torch.bfloat16, device=residual.device)
    lane.kernels.rms_norm(
        residual=residual.data_ptr(),
        norm=norm.data_ptr(),
        eps=eps,
        n_rows=n,
        dim=dim,
        out=normed.data_ptr(),
        stream=lane.stream,
    )
    return normed


def activated_rows(lane: Lane, x: Tensor, name: str, *, gated: bool, out: Tensor) -> None:
    """`out` bfloat16 (n, width) = the activation of x, bfloat16 (n, 2 width) if it is gated."""
    lane.kernels.activate(
        x=x.data_ptr(),
        n_rows=len(out),
        width=out.shape[1],
        epilogue=activation_of(lane.kernels, name, gated=gated),
        out=out.data_ptr(),
        stream=lane.stream,
    )


def product(lane: Lane, x: Tensor, matrix: CudaMatrix, bias: Tensor | None, *, out: Tensor) -> None:
    """out (n, n_out) = x (n, n_in) bfloat16 times the matrix transposed, plus bias."""
    for begin, tile in _tiles(lane, matrix):
        _multiply(x, tile, out=out[:, begin : begin + len(tile)])
    if bias is not None:
        out += bias


def _multiply(x: Tensor, tile: Tensor, *, out: Tensor) -> None:
    if out.dtype == x.dtype:
        torch.mm(x, tile.t(), out=out)
    elif x.is_cuda:
        torch.mm(x, tile.t(), out_dtype=out.dtype, out=out)
    else:
        torch.mm(x.to(out.dtype), tile.t().to(out.dtype), out=out)


def _tiles(lane: Lane, matrix: CudaMatrix) -> Iterator[tuple[int, Tensor]]:
    """A matrix in tiles: the index of the first row, and rows (k, n_in) as bfloat16."""
    if matrix.format == "bfloat16":
        yield 0, matrix.weights[: matrix.n_out, : matrix.n_in]
        return
    step = max(TILE_BYTES // (2 * matrix.n_in * PANEL_ROWS), 1) * PANEL_ROWS
    n_bytes = max(TILE_BYTES, 2 * matrix.n_in * PANEL_ROWS)
    memory = lane.scratch("tile", n_bytes).view(torch.bfloat16)
    for begin in range(0, matrix.n_out, step):
        end = min(begin + step, matrix.n_out)
        tile = memory[: (end - begin) * matrix.n_in].view(end - begin, matrix.n_in)
        cuda_weights.rows(matrix, begin, end, tile)
        yield begin, tile
