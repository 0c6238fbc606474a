"""The ops of a prompt's chunk on a CUDA device, in torch.

Owns how products of many rows are computed: in bfloat16 with sums in float32, on tiles of the
weights where these are codes. What an op computes stands in `device/reference.py`. Knows no pass.

Between ops, arrays are float32 as in a pass of few rows, with one exception: what only `linear`
reads, which rounds it anyway, lies in the same memory as bfloat16.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...checkpoint.config import ModelConfig
from ..formats import PANEL_ROWS
from . import attention as cuda_attention
from . import weights as cuda_weights
from .attention import CudaHeadRows, attend_chunk
from .lane import Lane
from .weights import CudaMatrix

# Of weights that are taken out of codes at a time.
_TILE_BYTES = 64 * 2**20


def working_bytes(config: ModelConfig, n_rows: int) -> int:
    """What a model works in for chunks of `n_rows`: the buffers of a pass, what lies between the
    ops of a chunk, and a tile of weights.
    """
    q_dim = config.n_heads * config.head_dim
    buffers = 4 * n_rows * (3 * config.dim + config.qkv_dim + q_dim + config.hidden_dim)
    between = 2 * n_rows * (3 * config.dim + 2 * config.hidden_dim + 2 * q_dim)
    keys_and_values = min(
        2 * 2 * config.n_kv_heads * config.head_dim * config.max_seq_len, cuda_attention.TILE_BYTES
    )
    logits = 4 * 2 * 16 * config.vocab_size
    return buffers + between + keys_and_values + logits + _TILE_BYTES


class PromptRows(NamedTuple):
    """Rows of a pass."""

    lane: Lane
    token_ids: Tensor  # (n,), on the device
    pos: int

    @property
    def n(self) -> int:
        return len(self.token_ids)


def embed(chunk: PromptRows, table: CudaMatrix, *, out: Tensor) -> None:
    cuda_weights.gather(table, chunk.token_ids, out[: chunk.n])


def norm_linear(
    chunk: PromptRows,
    residual: Tensor,
    matrix: CudaMatrix,
    *,
    norm: Tensor,
    eps: float,
    out: Tensor,
    branch: Tensor | None,
    residual_out: Tensor,
    bias: Tensor | None,
    gated: bool,
) -> None:
    n, lane = chunk.n, chunk.lane
    normed = torch.empty((n, matrix.n_in), dtype=torch.bfloat16, device=residual.device)
    lane.kernels.add_norm(
        residual_in=residual.data_ptr(),
        branch=0 if branch is None else branch.data_ptr(),
        residual_out=residual_out.data_ptr(),
        norm=norm.data_ptr(),
        eps=eps,
        n_rows=n,
        dim=matrix.n_in,
        out=normed.data_ptr(),
        stream=lane.stream,
    )
    if not gated:
        _product(lane, normed, matrix, bias, out=out[:n])
        return
    gate_up = normed.new_empty(n, matrix.n_out)
    _product(lane, normed, matrix, bias, out=gate_up)
    lane.kernels.silu_gate(
        gate_up=gate_up.data_ptr(),
        n_rows=n,
        width=matrix.n_out // 2,
        out=narrow(out, n).data_ptr(),
        stream=lane.stream,
    )


def linear(
    chunk: PromptRows, x: Tensor, matrix: CudaMatrix, *, bias: Tensor | None, out: Tensor
) -> None:
    _product(chunk.lane, narrow(x, chunk.n), matrix, bias, out=out[: chunk.n])


def attention(
    chunk: PromptRows,
    qkv: Tensor,
    keys: CudaHeadRows,
    values: CudaHeadRows,
    *,
    out: Tensor,
    **how: Any,
) -> None:
    """`how`: as `attend_chunk` has it."""
    attend_chunk(
        chunk.lane.kernels,
        qkv[: chunk.n],
        keys,
        values,
        **how,
        pos=chunk.pos,
        out=narrow(out, chunk.n),
        stream=chunk.lane.stream,
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
    """Rows (k, n_in) of a matrix as bfloat16, and the first one's index."""
    if matrix.format == "bfloat16":
        yield 0, matrix.weights[: matrix.n_out, : matrix.n_in]
        return
    step = max(_TILE_BYTES // (2 * matrix.n_in * PANEL_ROWS), 1) * PANEL_ROWS
    memory = lane.scratch(max(_TILE_BYTES, 2 * matrix.n_in * PANEL_ROWS)).view(torch.bfloat16)
    for begin in range(0, matrix.n_out, step):
        end = min(begin + step, matrix.n_out)
        tile = memory[: (end - begin) * matrix.n_in].view(end - begin, matrix.n_in)
        cuda_weights.rows(matrix, begin, end, tile)
        yield begin, tile
