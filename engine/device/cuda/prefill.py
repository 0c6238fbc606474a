"""The ops of a prompt's chunk on a CUDA device, in torch.

Owns the order of each op's parts: `products.py` multiplies. `device/reference.py` says what an op
computes. Knows no pass.

Between ops, arrays are float32 as in a pass of few rows, with one exception: an array that only
`linear` reads, which rounds it anyway, is bfloat16 in the same memory.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...checkpoint.config import ModelConfig
from ..arguments import AddNorm, Attention, Embed, Experts, Linear, NormLinear, Op
from . import attention as cuda_attention
from . import experts as cuda_experts
from . import weights as cuda_weights
from .attention import CudaHeadRows, attend_chunk, attend_in_turn
from .lane import Lane
from .products import TILE_BYTES, activated_rows, normed_rows, product
from .weights import CudaMatrix


def working_bytes(config: ModelConfig, n_rows: int) -> int:
    """Bytes that a model works in for chunks of `n_rows`: the buffers of a pass, temporaries of
    the ops, and a tile of weights.
    """
    attentions = [layer.attention for layer in config.layers]
    q_dim, kv_dim = max(each.q_dim for each in attentions), max(each.kv_dim for each in attentions)
    hidden_dim = max(layer.mlp.hidden_dim for layer in config.layers)
    buffers = 4 * n_rows * (2 * config.dim + 2 * q_dim + 2 * kv_dim + hidden_dim)
    between = 2 * n_rows * (3 * config.dim + 2 * hidden_dim + 2 * q_dim)
    mixtures = [layer.mlp.experts for layer in config.layers if layer.mlp.experts is not None]
    of_experts = max(
        (n_rows * each.n_used * (10 * config.dim + 6 * each.hidden_dim) for each in mixtures),
        default=0,
    )
    keys_and_values = min(2 * 2 * kv_dim * config.max_seq_len, cuda_attention.TILE_BYTES)
    logits = 4 * 2 * 16 * config.vocab_size
    return buffers + between + of_experts + keys_and_values + logits + TILE_BYTES


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
        case Experts():
            cuda_experts.run_chunk(op, chunk.lane, chunk.n)
        case AddNorm():
            _add_norm(op, chunk)


def _embed(op: Embed[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    out = op.out[: chunk.n]
    cuda_weights.gather(op.table, chunk.token_ids, out)
    if op.scale != 1.0:
        out *= op.scale


def _norm_linear(op: NormLinear[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    n, lane, matrix = chunk.n, chunk.lane, op.matrix
    normed = normed_rows(lane, op.residual, op.norm, op.eps, n)
    if not op.function:
        out = op.out[:n]
        product(lane, normed, matrix, op.bias, out=out)
        if op.scale != 1.0:
            out *= op.scale
        if op.softcap:
            out.div_(op.softcap).tanh_().mul_(op.softcap)
        return
    inner = normed.new_empty(n, matrix.n_out)
    product(lane, normed, matrix, op.bias, out=inner)
    if op.scale != 1.0:
        inner *= op.scale
    activated_rows(lane, inner, op.function, gated=op.gated, out=narrow(op.out, n))


def _linear(op: Linear[Tensor, CudaMatrix], chunk: PromptRows) -> None:
    out = op.out[: chunk.n]
    product(chunk.lane, narrow(op.x, chunk.n), op.matrix, op.bias, out=out)
    if op.scale != 1.0:
        out *= op.scale
    if op.residual is not None:
        out += op.residual[: chunk.n]


def _attention(op: Attention[Tensor, CudaHeadRows], chunk: PromptRows) -> None:
    lane, n, out = chunk.lane, chunk.n, narrow(op.out, chunk.n)
    if op.softcap or op.sinks is not None:
        scratch = attention_scratch(lane, op)
        attend_in_turn(
            lane.kernels, op, n, pos=chunk.pos, scratch=scratch, out=out, stream=lane.stream
        )
    else:
        attend_chunk(lane.kernels, op, n, pos=chunk.pos, out=out, stream=lane.stream)


def _add_norm(op: AddNorm[Tensor], chunk: PromptRows) -> None:
    tape = chunk.lane.kernels.Tape()
    tape.add_norm(**add_norm_fields(op))
    # It reads no state, and no position.
    tape.run(0, chunk.n, 0, chunk.lane.stream)


def add_norm_fields(op: AddNorm[Tensor]) -> dict[str, Any]:
    """The fields of AddNormArgs."""
    return {
        "x": op.x.data_ptr(),
        "norm": op.norm.data_ptr(),
        "eps": op.eps,
        "residual": 0 if op.residual is None else op.residual.data_ptr(),
        "scale": op.scale,
        "factor": 0 if op.factor is None else op.factor.data_ptr(),
        "out": op.out.data_ptr(),
        "dim": op.x.shape[1],
        "width": op.norm.shape[0],
    }


def attention_scratch(lane: Lane, op: Attention[Tensor, CudaHeadRows]) -> Tensor:
    """The memory that the attention of few rows works in, which all its layers share."""
    cache = op.k_cache
    n_bytes = lane.kernels.attention_scratch_bytes(op.n_heads, cache.head_dim, cache.max_seq_len)
    return lane.scratch("attention", n_bytes)


def narrow(array: Tensor, n: int) -> Tensor:
    """The memory of `array` (rows, width) float32, as (n, width) bfloat16."""
    return array.view(-1).view(torch.bfloat16)[: n * array.shape[1]].view(n, array.shape[1])
