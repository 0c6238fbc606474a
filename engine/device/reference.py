"""Every op of the decoder in plain torch: what runs where there is no native code, and the oracle
of the tests.

Owns the meaning of the ops. Knows nothing of models, caches or native code. Shape letters: V
vocabulary, dim model width, rows tokens processed at once, hd head dimension, L visible positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def embed(table: Tensor, token_ids: Tensor, *, out: Tensor) -> None:
    """Rows of `table` (V, dim) named by `token_ids` int64 (rows,) into `out` (rows, dim)."""
    out.copy_(table[token_ids])


def norm_linear(
    residual: Tensor,
    matrix: Tensor,
    *,
    norm: Tensor,
    eps: float,
    out: Tensor,
    branch: Tensor | None = None,
    residual_out: Tensor | None = None,
    bias: Tensor | None = None,
    gated: bool = False,
) -> None:
    """x = residual + branch, kept in `residual_out`; out = matrix times rms_norm(x), plus bias.

    residual, branch, residual_out (rows, n_in), matrix (n_out, n_in), norm (n_in,), bias (n_out,),
    out (rows, n_out). `gated`: the upper half of the product is gate, the lower half up, and out
    (rows, n_out / 2) = silu(gate) * up.
    """
    x = residual if branch is None else residual + branch
    if residual_out is not None:
        residual_out.copy_(x)
    y = _linear(rms_norm(x, norm, eps), matrix, bias)
    out.copy_(silu_mul(y) if gated else y)


def attention(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    n_heads: int,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    pos: int,
    window: int,
    scale: float,
    out: Tensor,
) -> None:
    """Optional RMSNorm per query and key head, rotary embedding, keys and values into the caches
    from position `pos` on, then causal attention over the caches.

    qkv (rows, (n_heads + 2 * n_kv) * hd), caches (n_kv, max_seq, hd), q_norm, k_norm (hd,), cos,
    sin float32 (max_seq, rotary / 2), out (rows, n_heads * hd). Row r is at position i = pos + r
    and sees key j iff j <= i and (window == 0 or i - j < window).
    """
    rows, (n_kv_heads, _, head_dim) = qkv.shape[0], k_cache.shape
    heads = qkv.view(rows, n_heads + 2 * n_kv_heads, head_dim)
    queries, keys, values = heads.tensor_split((n_heads, n_heads + n_kv_heads), dim=1)
    here = slice(pos, pos + rows)
    if q_norm is not None:
        queries = rms_norm(queries, q_norm, eps)
    if k_norm is not None:
        keys = rms_norm(keys, k_norm, eps)
    queries, keys = rope(queries, cos[here], sin[here]), rope(keys, cos[here], sin[here])
    k_cache[:, here] = keys.transpose(0, 1).to(k_cache.dtype)
    v_cache[:, here] = values.transpose(0, 1).to(v_cache.dtype)
    result = attend(queries, k_cache, v_cache, pos=pos, window=window, scale=scale)
    out.view(rows, n_heads, head_dim).copy_(result)


def linear(x: Tensor, matrix: Tensor, *, bias: Tensor | None, out: Tensor) -> None:
    """out (rows, n_out) = x (rows, n_in) times matrix (n_out, n_in) transposed, plus bias."""
    out.copy_(_linear(x, matrix, bias))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32, rounded once."""
    wide = x.float()
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse * weight.float()).to(x.dtype)


def rope(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (NEOX halves) of heads (rows, n, hd) with cos, sin (rows, rotary / 2).

    What of a head lies beyond the rotary dimension stays as it is.
    """
    half = cos.shape[1]
    wide, cosine, sine = heads.float(), cos.unsqueeze(1), sin.unsqueeze(1)
    first, second, rest = wide.tensor_split((half, 2 * half), dim=2)
    rotated = (first * cosine - second * sine, second * cosine + first * sine, rest)
    return torch.cat(rotated, dim=2).to(heads.dtype)


def attend(
    queries: Tensor, k_cache: Tensor, v_cache: Tensor, *, pos: int, window: int, scale: float
) -> Tensor:
    """Causal attention (rows, n_heads, hd) of queries (rows, n_heads, hd) at positions `pos` and
    up, over caches that already hold their keys; grouped queries share keys without copies of them.
    """
    rows, n_heads, head_dim = queries.shape
    n_kv_heads = k_cache.shape[0]
    group = n_heads // n_kv_heads
    start = max(0, pos - window + 1) if window else 0
    seen = slice(start, pos + rows)
    keys = k_cache[:, seen].unsqueeze(1).to(queries.dtype)  # (n_kv, 1, L, hd)
    values = v_cache[:, seen].unsqueeze(1).to(queries.dtype)
    grouped = queries.view(rows, n_kv_heads, group, head_dim)
    if rows == 1:
        # The heads of a group become the rows of one small matrix, so that each key is read once.
        result = F.scaled_dot_product_attention(grouped.transpose(0, 1), keys, values, scale=scale)
        return result.view(1, n_heads, head_dim)
    shape = (n_kv_heads, group, pos + rows - start, head_dim)
    whole = pos == 0 and (window == 0 or rows <= window)
    result = F.scaled_dot_product_attention(
        grouped.permute(1, 2, 0, 3),  # (n_kv, group, rows, hd)
        keys.expand(shape),  # stride 0 over the group
        values.expand(shape),
        attn_mask=None if whole else _visible(queries, pos=pos, start=start, window=window),
        is_causal=whole,
        scale=scale,
    )
    return result.permute(2, 0, 1, 3).reshape(rows, n_heads, head_dim)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up (rows, hidden) of gate_up (rows, 2 * hidden), which holds gate, then up."""
    gate, up = gate_up.chunk(2, dim=1)
    return F.silu(gate) * up


def _linear(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    product = x @ matrix.t()
    return product if bias is None else product + bias


def _visible(queries: Tensor, *, pos: int, start: int, window: int) -> Tensor:
    """Boolean (rows, L): which of the keys from position `start` on each row may see."""
    end = pos + queries.shape[0]
    i = torch.arange(pos, end, device=queries.device).unsqueeze(1)
    j = torch.arange(start, end, device=queries.device)
    visible = j <= i
    return visible & (i - j < window) if window else visible
