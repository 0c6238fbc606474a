"""Every op of the engine in plain torch: the fallback where no native kernel exists, and the oracle
of the tests.

Owns the meaning of the ops and the types of the sampler op. Knows nothing of models, caches or
native code. Shape letters: V vocabulary, dim model width, rows tokens processed at once, hd head
dimension, L visible positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import NumericsError

# A token this many nats below the best one (after temperature) has no mass: exp(-700) is still a
# normal double, so the native sampler and this one agree on which tokens are candidates.
LOWEST_EXPONENT = -700.0

# How the errors call the logits before and after penalties and biases.
RAW_LOGITS = "logits"
ADJUSTED_LOGITS = "logits after penalties and biases"

_FIRST_SELECTION = 1024


@dataclass(frozen=True, slots=True, eq=False)
class SampleRequest:
    """What the sampler op does with one row of logits. The values are validated by whoever builds
    it.
    """

    temperature: float  # 0 = greedy
    top_k: int  # 0 = off
    top_p: float  # 1 = off
    min_p: float  # 0 = off
    u: float  # uniform in [0, 1)
    n_top: int  # alternatives wanted
    repetition_penalty: float
    repetition_ids: Tensor  # int32 (n,), unique
    delta_ids: Tensor  # int32 (m,), unique
    deltas: Tensor  # float32 (m,), added to the logits of delta_ids


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The drawn token with its probabilities, and the most likely tokens by raw logit.

    raw = softmax of the untouched logits; sampled = the distribution drawn from. Fewer than n_top
    alternatives come back when fewer tokens have a finite logit.
    """

    token_id: int
    p_raw: float
    p_sampled: float
    logprob_raw: float  # natural logarithm
    top_ids: tuple[int, ...]
    top_logprobs_raw: tuple[float, ...]
    top_p_sampled: tuple[float, ...]


def embed(table: Tensor, token_ids: Tensor, *, out: Tensor) -> None:
    """Rows of `table` (V, dim) named by `token_ids` int64 (rows,) into `out` (rows, dim)."""
    torch.index_select(table, 0, token_ids, out=out)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float, out: Tensor) -> None:
    """x / sqrt(mean(x^2) + eps) * weight per row: x (rows, dim), weight (dim,), out (rows, dim).

    Computed in float32 and rounded once, at the end.
    """
    out.copy_(_normalised(x, weight, eps))


def add_rms_norm(residual: Tensor, x: Tensor, weight: Tensor, *, eps: float, out: Tensor) -> None:
    """residual += x in place, then `rms_norm` of the stored residual; all (rows, dim), weight
    (dim,).
    """
    residual.add_(x)
    out.copy_(_normalised(residual, weight, eps))


def linear(x: Tensor, weight: Tensor, *, bias: Tensor | None, out: Tensor) -> None:
    """x (rows, in) times weight (outf, in) transposed, plus bias (outf,), into out (rows, outf)."""
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


def head_norm_rope(
    qkv: Tensor,
    *,
    n_heads: int,
    n_kv_heads: int,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    eps: float,
    cos: Tensor,
    sin: Tensor,
    pos: int,
) -> None:
    """Optional RMSNorm per query and key head, then rotary embedding (NEOX halves), in place.

    qkv (rows, (n_heads + 2 * n_kv_heads) * hd); q_weight, k_weight (hd,); cos, sin float32
    (max_seq, rotary / 2); row r is at position pos + r. The rotary dimension is twice the width of
    `cos`; the rest of each head is left as it is.
    """
    rows = qkv.shape[0]
    heads = qkv.view(rows, n_heads + 2 * n_kv_heads, -1)
    query_key = heads[:, : n_heads + n_kv_heads]  # (rows, n_heads + n_kv_heads, hd)
    values = query_key.float()
    if q_weight is not None:
        values[:, :n_heads] = _normalised(query_key[:, :n_heads], q_weight, eps)
    if k_weight is not None:
        values[:, n_heads:] = _normalised(query_key[:, n_heads:], k_weight, eps)
    half = cos.shape[1]
    cosine = cos[pos : pos + rows].unsqueeze(1)  # (rows, 1, rotary / 2)
    sine = sin[pos : pos + rows].unsqueeze(1)
    first, second = values[..., :half], values[..., half : 2 * half]
    # In float32 `values` is `query_key` itself: both halves are read before either is written.
    rotated = first * cosine - second * sine
    query_key[..., half : 2 * half] = second * cosine + first * sine
    query_key[..., :half] = rotated
    query_key[..., 2 * half :] = values[..., 2 * half :]


def kv_write(qkv: Tensor, k_cache: Tensor, v_cache: Tensor, *, n_heads: int, pos: int) -> None:
    """Keys and values of `qkv` (rows, (n_heads + 2 * n_kv) * hd) into caches (n_kv, max_seq, hd)
    from position pos.
    """
    rows = qkv.shape[0]
    n_kv_heads, _, head_dim = k_cache.shape
    heads = qkv.view(rows, n_heads + 2 * n_kv_heads, head_dim)
    end = pos + rows
    k_cache[:, pos:end].copy_(heads[:, n_heads : n_heads + n_kv_heads].transpose(0, 1))
    v_cache[:, pos:end].copy_(heads[:, n_heads + n_kv_heads :].transpose(0, 1))


def attention(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    n_heads: int,
    pos: int,
    window: int,
    scale: float,
    out: Tensor,
) -> None:
    """Causal attention of the rows over the cache, grouped queries sharing keys without copies of
    them.

    qkv (rows, (n_heads + 2 * n_kv) * hd), caches (n_kv, max_seq, hd) that already hold the rows,
    out (rows, n_heads * hd). Row r is at position i = pos + r and sees key j iff j <= i and (window
    == 0 or i - j < window).
    """
    rows = qkv.shape[0]
    n_kv_heads, _, head_dim = k_cache.shape
    group = n_heads // n_kv_heads
    start = max(0, pos - window + 1) if window else 0
    keys = k_cache[:, start : pos + rows].unsqueeze(1)  # (n_kv, 1, L, hd), a view
    values = v_cache[:, start : pos + rows].unsqueeze(1)
    query = qkv[:, : n_heads * head_dim].view(rows, n_kv_heads, group, head_dim)
    if rows == 1:
        # The heads of a group become the rows of one small matrix, so that each key is read once.
        result = F.scaled_dot_product_attention(query.transpose(0, 1), keys, values, scale=scale)
        out.view(n_kv_heads, group, head_dim).copy_(result.squeeze(1))
        return
    shape = (n_kv_heads, group, pos + rows - start, head_dim)
    whole = pos == 0 and (window == 0 or rows <= window)
    result = F.scaled_dot_product_attention(
        query.permute(1, 2, 0, 3),  # (n_kv, group, rows, hd)
        keys.expand(shape),  # stride 0 over the group
        values.expand(shape),
        attn_mask=None if whole else _visible(qkv, pos=pos, start=start, window=window),
        is_causal=whole,
        scale=scale,
    )
    out.view(rows, n_kv_heads, group, head_dim).copy_(result.permute(2, 0, 1, 3))


def silu_mul(gate_up: Tensor, *, out: Tensor) -> None:
    """silu(gate) * up: gate_up (rows, 2 * hidden) holds gate then up, out (rows, hidden)."""
    gate, up = gate_up.chunk(2, dim=1)
    torch.mul(F.silu(gate), up, out=out)


def add(residual: Tensor, x: Tensor) -> None:
    """residual += x, both (rows, dim)."""
    residual.add_(x)


def logits(x: Tensor, weight: Tensor, *, out: Tensor) -> None:
    """x (rows, dim) times weight (V, dim) transposed into out float32 (rows, V)."""
    if x.dtype == torch.float32:
        torch.mm(x, weight.t(), out=out)
    else:
        out.copy_(torch.mm(x, weight.t()))


def sample(logits: Tensor, request: SampleRequest, *, work: Tensor) -> SampleResult:
    """Draw one token from `logits` float32 (V,), which stay untouched; `work` float32 (V,) receives
    the adjusted ones.

    Order: repetition penalty, deltas, temperature, softmax, top_k, top_p, min_p, then the inverse
    of the cumulative distribution at `u` over the kept tokens in descending probability (ties:
    lower id first). Each filter sees probabilities renormalised over what the one before kept;
    top_p keeps the token that crosses it; min_p is relative to the largest probability. Greedy
    (temperature 0) takes the largest adjusted logit (ties: lowest id) with probability 1. Raises
    NumericsError for NaN or +inf, and when no token has a finite logit before or after the
    adjustments.
    """
    check_finite(logits, RAW_LOGITS)
    _adjust(logits, request, work)
    check_finite(work, ADJUSTED_LOGITS)
    raw = logits.double()
    log_total = torch.logsumexp(raw, 0)
    top_ids = [i for i in _largest(logits, request.n_top).tolist() if logits[i] > -torch.inf]
    if request.temperature == 0:
        token_id = int(torch.argmax(work))
        top_p_sampled = [float(i == token_id) for i in top_ids]
        p_sampled = 1.0
    else:
        token_id, mass, kept_mass, last = _draw(work, request)
        top_p_sampled = [
            float(mass[i] / kept_mass) if _at_or_before(work, i, last) else 0.0 for i in top_ids
        ]
        p_sampled = float(mass[token_id] / kept_mass)
    logprob_raw = float(raw[token_id] - log_total)
    return SampleResult(
        token_id=token_id,
        p_raw=float(torch.exp(raw[token_id] - log_total)),
        p_sampled=p_sampled,
        logprob_raw=logprob_raw,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple((raw[top_ids] - log_total).tolist()),
        top_p_sampled=tuple(top_p_sampled),
    )


def check_finite(logits: Tensor, name: str) -> None:
    """Raise NumericsError, naming the first offending token, unless `logits` (V,) can be sampled
    from.
    """
    bad = torch.nonzero(logits.isnan() | (logits == torch.inf))
    if bad.numel():
        token_id = int(bad[0])
        raise NumericsError(
            f"{name}: {logits[token_id].item()} at token {token_id}, allowed: finite or -inf"
        )
    if not logits.isfinite().any():
        raise NumericsError(f"{name}: none of {logits.numel()} is finite, at least one must be")


def _normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension, in float32."""
    wide = x.float()
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide * inverse * weight.float()


def _visible(qkv: Tensor, *, pos: int, start: int, window: int) -> Tensor:
    """Boolean (rows, L): which of the keys from position `start` on each row may see."""
    rows = qkv.shape[0]
    i = torch.arange(pos, pos + rows, device=qkv.device).unsqueeze(1)
    j = torch.arange(start, pos + rows, device=qkv.device)
    visible = j <= i
    return visible & (i - j < window) if window else visible


def _adjust(logits: Tensor, request: SampleRequest, work: Tensor) -> None:
    work.copy_(logits)
    if request.repetition_ids.numel():
        ids = request.repetition_ids.long()
        seen = work[ids]
        penalty = request.repetition_penalty
        work[ids] = torch.where(seen > 0, seen / penalty, seen * penalty)
    if request.delta_ids.numel():
        work[request.delta_ids.long()] += request.deltas


def _largest(logits: Tensor, n: int) -> Tensor:
    """Ids of the n largest logits, descending, the lower id first among equals; no sort of the
    whole vocabulary.
    """
    if n <= 0:
        return torch.empty(0, dtype=torch.int64)
    threshold = torch.topk(logits, min(n, logits.numel()), sorted=True).values[-1]
    ids = torch.nonzero(
        logits >= threshold
    ).flatten()  # ascending, so that a stable sort orders the ties
    order = torch.sort(logits[ids], descending=True, stable=True).indices
    return ids[order[:n]]


def _at_or_before(logits: Tensor, token_id: int, last: int) -> bool:
    """Whether a token comes no later than `last` in the descending order (lower id first among
    equals).
    """
    value, bound = logits[token_id], logits[last]
    return bool(value > bound or (value == bound and token_id <= last))


def _draw(work: Tensor, request: SampleRequest) -> tuple[int, Tensor, Tensor, int]:
    """(token, mass of every token, mass kept, last kept token); masses are relative to the most
    likely token's.
    """
    wide = work.double()
    exponent = (wide - wide.max()) / request.temperature
    mass = torch.where(exponent > LOWEST_EXPONENT, exponent.exp(), 0.0)  # (V,)
    total = mass.sum()
    n_candidates = int((mass > 0).sum())
    limit = min(request.top_k or n_candidates, n_candidates)
    ids, cumulative = _prefix(work, mass, total, limit, request)
    kept = ids.numel()
    if request.top_p < 1:
        base = cumulative[limit - 1] if limit < n_candidates else total
        kept = min(kept, int(torch.searchsorted(cumulative, request.top_p * base)) + 1)
    if request.min_p > 0:
        kept = min(kept, int((mass[ids] >= request.min_p).sum()))
    if request.top_k or request.top_p < 1 or request.min_p > 0:
        kept_mass, last = cumulative[kept - 1], int(ids[kept - 1])
    else:
        kept_mass, last = total, _last_candidate(work, mass)
    index = int(torch.searchsorted(cumulative[:kept], request.u * kept_mass, right=True))
    return int(ids[min(index, kept - 1)]), mass, kept_mass, last


def _prefix(
    work: Tensor, mass: Tensor, total: Tensor, limit: int, request: SampleRequest
) -> tuple[Tensor, Tensor]:
    """The start of the descending order, long enough for every filter and the draw: (ids,
    cumulative mass).
    """
    n = limit if request.top_k else min(limit, _FIRST_SELECTION)
    goal = (request.top_p if request.top_p < 1 else request.u) * total
    while True:
        ids = _largest(work, n)
        cumulative = mass[ids].cumsum(0)
        if n == limit or mass[ids[-1]] < request.min_p:
            return ids, cumulative
        if cumulative[-1] > goal and (request.top_p < 1 or request.min_p == 0):
            return ids, cumulative
        n = min(limit, 8 * n)


def _last_candidate(work: Tensor, mass: Tensor) -> int:
    """The last token of the descending order that has any mass."""
    lowest = torch.where(mass > 0, work, torch.inf).min()
    return int(torch.nonzero(work == lowest)[-1])
