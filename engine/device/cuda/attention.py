"""Keys and values in the memory of a CUDA device, and attention of a prompt's chunk over them.

Owns the caches as csrc/cuda/attention.h has them, and attention of many rows at once: own kernels
rotate and store, torch's attention reads. Where torch has none, for capped scores and sinks, the
kernel of few rows takes them in turn. `device/reference.py` says what is computed. Knows no pass;
for a pass of few rows, which is one kernel, `fields` gives its arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from ..arguments import Attention

FORMATS = ("bfloat16", "8bit")

# Elements and positions are padded to this, so that each row and each four scales are aligned.
_PADDING = 16
# Bytes of 8-bit keys and values decoded to bfloat16 at a time.
TILE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class CudaHeadRows:
    """Keys or values of one layer."""

    rows: Tensor
    """(n_kv_heads, positions, elements), rounded up: bfloat16, or codes + 128 as uint8."""
    scales: Tensor | None
    """float32 (n_kv_heads, positions), of 8bit."""
    max_seq_len: int
    head_dim: int

    @classmethod
    def zeros(
        cls, count: int, shape: tuple[int, int, int], format_: str, device: torch.device
    ) -> "list[CudaHeadRows]":
        """`count` times (n_kv_heads, max_seq_len, head_dim), one after the other in memory."""
        n_heads, max_seq_len, head_dim = shape
        if format_ not in FORMATS:
            raise ValueError(f"keys and values are {' or '.join(FORMATS)}, not {format_}")
        lengths = (count, n_heads, _padded(max_seq_len))
        is_8bit = format_ == "8bit"
        dtype = torch.uint8 if is_8bit else torch.bfloat16
        rows = torch.zeros((*lengths, _padded(head_dim)), dtype=dtype, device=device)
        scales = torch.zeros(lengths if is_8bit else (count, 0), device=device)
        return [
            cls(own, its_scales if is_8bit else None, max_seq_len, head_dim)
            for own, its_scales in zip(rows, scales, strict=True)
        ]

    @property
    def n_kv_heads(self) -> int:
        return len(self.rows)

    @property
    def format(self) -> str:
        return "bfloat16" if self.scales is None else "8bit"


def place(kernels: Any, keys: CudaHeadRows, values: CudaHeadRows) -> dict[str, Any]:
    """The fields of AttentionArgs that say where the caches are and what they hold."""
    kv_type = kernels.KvType
    return {
        "k_cache": keys.rows.data_ptr(),
        "v_cache": values.rows.data_ptr(),
        "k_scales": _address(keys.scales),
        "v_scales": _address(values.scales),
        "kv": kv_type.BF16 if keys.scales is None else kv_type.INT8,
        "n_kv_heads": keys.n_kv_heads,
        "head_dim": keys.head_dim,
        "max_seq_len": keys.rows.shape[1],
    }


def fields(kernels: Any, op: Attention[Tensor, CudaHeadRows], *, scratch: Tensor) -> dict[str, Any]:
    """The fields of AttentionArgs but for qkv, out and what comes next. `scratch`: bytes, as many
    as the module says, zeros at first.
    """
    return {
        **place(kernels, op.k_cache, op.v_cache),
        "n_heads": op.n_heads,
        "q_norm": _address(op.q_norm),
        "k_norm": _address(op.k_norm),
        "eps": op.eps,
        "cos": op.cos.data_ptr(),
        "sin": op.sin.data_ptr(),
        "rotary_half": op.cos.shape[1],
        "window": op.window,
        "scale": op.scale,
        "softcap": op.softcap,
        "sinks": _address(op.sinks),
        "scratch": scratch.data_ptr(),
    }


def attend_in_turn(
    kernels: Any,
    op: Attention[Tensor, CudaHeadRows],
    n: int,
    *,
    pos: int,
    scratch: Tensor,
    out: Tensor,
    stream: int,
) -> None:
    """The same as `attend_chunk` for any `op`, with the kernel of few rows, as many at a time as it
    takes: each row's bits are those that it has in a pass of its own.
    """
    exact = torch.empty(out.shape, dtype=torch.float32, device=out.device)
    state = torch.zeros(kernels.state_bytes // 8, dtype=torch.int64, device=out.device)
    state[0] = pos
    tape = kernels.Tape()
    tape.attention(
        qkv=op.qkv.data_ptr(),
        **fields(kernels, op, scratch=scratch),
        out=exact.data_ptr(),
        next=[],
    )
    tape.run(state.data_ptr(), n, pos + n, stream)
    out.copy_(exact)


def attend_chunk(
    kernels: Any,
    op: Attention[Tensor, CudaHeadRows],
    n: int,
    *,
    pos: int,
    out: Tensor,
    stream: int,
) -> None:
    """The attention `op` of `n` rows, with queries rounded to bfloat16.

    `out` (n, n_heads head_dim) of any dtype takes the place of `op.out`. `kernels` is the native
    module, `stream` torch's current one.
    """
    keys, values, n_heads = op.k_cache, op.v_cache, op.n_heads
    head_dim, n_kv_heads, n_elements = keys.head_dim, keys.n_kv_heads, keys.rows.shape[2]
    queries = torch.empty((n, n_heads, n_elements), dtype=torch.bfloat16, device=op.qkv.device)
    kernels.rope(
        qkv=op.qkv.data_ptr(),
        **place(kernels, keys, values),
        n_heads=n_heads,
        q_norm=_address(op.q_norm),
        k_norm=_address(op.k_norm),
        eps=op.eps,
        cos=op.cos.data_ptr(),
        sin=op.sin.data_ptr(),
        rotary_half=op.cos.shape[1],
        pos=pos,
        n_rows=n,
        queries=queries.data_ptr(),
        stream=stream,
    )
    window = op.window
    begin = max(0, pos - window + 1) if window else 0
    end = pos + n
    # (n_kv_heads, group, n, elements): the heads of a group read the same keys.
    grouped = queries.view(n, n_kv_heads, n_heads // n_kv_heads, n_elements).permute(1, 2, 0, 3)
    result = out.view(n, n_kv_heads, n_heads // n_kv_heads, head_dim).permute(1, 2, 0, 3)
    for heads in _head_tiles(keys, end - begin):
        attended = _attend(
            grouped[heads],
            _as_bfloat16(kernels, keys, heads, begin, end, stream),
            _as_bfloat16(kernels, values, heads, begin, end, stream),
            window=window,
            scale=op.scale,
        )
        result[heads].copy_(attended[..., :head_dim])


def _attend(queries: Tensor, keys: Tensor, values: Tensor, *, window: int, scale: float) -> Tensor:
    """queries (n_kv, group, n, elements) of the last n positions of keys (n_kv, L, elements)."""
    n_kv_heads, group, n, n_elements = queries.shape
    length = keys.shape[1]
    shape = (n_kv_heads, group, length, n_elements)
    whole = not window or length <= window
    return F.scaled_dot_product_attention(
        queries,
        keys.unsqueeze(1).expand(shape),  # stride 0 over the group
        values.unsqueeze(1).expand(shape),
        # causal_lower_right is not a tensor: torch's attention recognises it.
        attn_mask=causal_lower_right(n, length) if whole else _visible(queries, length, window),
        scale=scale,
    )


def _visible(queries: Tensor, length: int, window: int) -> Tensor:
    """Boolean (n, L): which of the last L positions each of the last n rows sees."""
    n = queries.shape[2]
    i = torch.arange(length - n, length, device=queries.device).unsqueeze(1)
    j = torch.arange(length, device=queries.device)
    return (j <= i) & (i - j < window)


def _head_tiles(cache: CudaHeadRows, length: int) -> Sequence[slice]:
    """KV heads that attend together: all, or with 8bit as many as a tile has room for."""
    n_heads, _, n_elements = cache.rows.shape
    step = n_heads
    if cache.scales is not None:
        step = max(1, TILE_BYTES // (2 * 2 * length * n_elements))
    return [slice(first, first + step) for first in range(0, n_heads, step)]


def _as_bfloat16(
    kernels: Any, cache: CudaHeadRows, heads: slice, begin: int, end: int, stream: int
) -> Tensor:
    """Positions of some heads (n, end - begin, elements): a view, or a decoded copy of 8bit."""
    rows = cache.rows[heads]
    if cache.scales is None:
        return rows[:, begin:end]
    shape = (len(rows), end - begin, rows.shape[2])
    wide = torch.empty(shape, dtype=torch.bfloat16, device=rows.device)
    kernels.unpack_kv(
        codes=rows.data_ptr(),
        scales=cache.scales[heads].data_ptr(),
        n_kv_heads=len(rows),
        head_dim=cache.head_dim,
        max_seq_len=rows.shape[1],
        begin=begin,
        end=end,
        out=wide.data_ptr(),
        stream=stream,
    )
    return wide


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _padded(n: int) -> int:
    return -(-n // _PADDING) * _PADDING
