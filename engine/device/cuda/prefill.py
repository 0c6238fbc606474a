"""The ops of a prompt's chunk on a CUDA device, in torch.

Owns how products of many rows are computed: in bfloat16 with sums in float32, on tiles of the
weights where these are codes. `device/reference.py` says what an op computes. Knows no pass.

Between ops, arrays are float32 as in a pass of few rows, with one exception: an array that only
`linear` reads, which rounds it anyway, is bfloat16 in the same memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ...checkpoint.config import ModelConfig
from ..arguments import Attention, Embed, Linear, NormLinear, Op
from ..formats import PANEL_ROWS
from . import attention as cuda_attention
from . import weights as cuda_weights
from .attention import CudaHeadRows, attend_chunk
from .lane import Lane
from .weights import CudaMatrix

# Bytes of weights that are decoded at a time.
_TILE_BYTES = 64 * 2**20


def working_bytes(config: ModelConfig, n_rows: int) -> int:
    """Bytes that a model works in for chunks of `n_rows`: the buffers of a pass, temporaries of
    the ops, and a tile of weights.
    """
    attentions = [layer.attention for layer in config.layers]
    q_dim, kv_dim = max(each.q_dim for each in attentions), max(each.kv_dim for each in attentions)
    hidden_dim = max(layer.mlp.hidden_dim for layer in config.layers)
    buffers = 4 * n_rows * (2 * config.dim + 2 * q_dim + 2 * kv_dim + hidden_dim)
    between = 2 * n_rows * (3 * config.dim + 2 * hidden_dim + 2 * q_dim)
    keys_and_values = min(2 * 2 * kv_dim * config.max_seq_len, cuda_attention.TILE_BYTES)
    logits = 4 * 2 * 16 * config.vocab_size
    return buffers + between + keys_and_values + logits + _TILE_BYTES


class PromptRows(NamedTuple):
    """The rows of one chunk."""

    lane: Lane
    token_ids: Tensor  # (n,), on the device
    pos: int

    @property
    def n(self) -> int:
        return len(self.token_ids)


def run(op: Op, chunk: PromptRows) -> None:
    match op:
        case Embed():
            _embed(op, chunk)
        case NormLinear():
            _norm_linear(op, chunk)
        case Linear():
            _linear(op, chunk)
        case Attention():
            _attention(op, chunk)


def _embed(op: Embed[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    cuda_weights.gather(op.table, chunk.token_ids, op.out[: chunk.n])


def _norm_linear(op: NormLinear[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    n, lane, matrix = chunk.n, chunk.lane, op.matrix
    assert op.norm is not None, "the program refuses products without a norm"
    normed = torch.empty((n, matrix.n_in), dtype=torch.bfloat16, device=op.residual.device)
    lane.kernels.rms_norm(
        residual=op.residual.data_ptr(),
        norm=op.norm.data_ptr(),
        eps=op.eps,
        n_rows=n,
        dim=matrix.n_in,
        out=normed.data_ptr(),
        stream=lane.stream,
    )
    if not op.gated:
        _product(lane, normed, matrix, op.bias, out=op.out[:n])
        return
    gate_up = normed.new_empty(n, matrix.n_out)
    _product(lane, normed, matrix, op.bias, out=gate_up)
    lane.kernels.silu_gate(
        gate_up=gate_up.data_ptr(),
        n_rows=n,
        width=matrix.n_out // 2,
        out=narrow(op.out, n).data_ptr(),
        stream=lane.stream,
    )


def _linear(op: Linear[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    out = op.out[: chunk.n]
    _product(chunk.lane, narrow(op.x, chunk.n), op.matrix, op.bias, out=out)
    if op.residual is not None:
        out += op.residual[: chunk.n]


def _attention(op: Attention[Tensor, CudaHeadRows], chunk: PromptRows) -> None:
    lane = chunk.lane
    attend_chunk(
        lane.kernels, op, chunk.n, pos=chunk.pos, out=narrow(op.out, chunk.n), stream=lane.stream
    )


def narrow(array: Tensor, n: int) -> Tensor:
    """The memory of `array` (rows, width) float32, as (n, width) bfloat16."""
    return array.view(-1).view(torch.bfloat16)[: n * array.shape[1]].view(n, array.shape[1])


def _product(
    lane: Lane, x: Tensor, matrix: CudaMatrix, bias: Tensor | None, *, out: Tensor
) -> None:
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
    step = max(_TILE_BYTES // (2 * matrix.n_in * PANEL_ROWS), 1) * PANEL_ROWS
    n_bytes = max(_TILE_BYTES, 2 * matrix.n_in * PANEL_ROWS)
    memory = lane.scratch("tile", n_bytes).view(torch.bfloat16)
    for begin in range(0, matrix.n_out, step):
        end = min(begin + step, matrix.n_out)
        tile = memory[: (end - begin) * matrix.n_in].view(end - begin, matrix.n_in)
        cuda_weights.rows(matrix, begin, end, tile)
        yield begin, tile
