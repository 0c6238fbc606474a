"""Every op of the decoder in plain torch: the fallback without native code, and the oracle of the
tests.

Owns the meaning of the ops; `arguments.py` has their shapes. Knows nothing of models or native
code. Shape letters: hd head dimension, L visible positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint.activation import Xielu
from . import mamba_reference, recurrent_reference
from .arguments import (
    AddNorm,
    Attention,
    DeltaNet,
    Embed,
    Expert,
    Experts,
    Gate,
    GatedNorm,
    Heads,
    Linear,
    LookUp,
    Mamba2,
    NormLinear,
    Op,
    ShortConv,
    Times,
)
from .routing_reference import choose
from .step import StepState


@dataclass(frozen=True, slots=True)
class TorchMatrix:
    """A matrix as a tensor (n_out, n_in); if it is gated, the gate is the upper half."""

    weights: Tensor
    format: str  # as formats.py names it

    @property
    def n_out(self) -> int:
        return self.weights.shape[0]

    @property
    def n_in(self) -> int:
        return self.weights.shape[1]

    @property
    def n_bytes(self) -> int:
        return self.weights.nbytes


@dataclass(frozen=True, slots=True)
class TorchHeadRows:
    """Keys or values of one layer as a tensor (n_kv_heads, max_seq_len, head_dim)."""

    rows: Tensor
    format: str  # as formats.py names it

    @property
    def n_kv_heads(self) -> int:
        return self.rows.shape[0]

    @property
    def max_seq_len(self) -> int:
        return self.rows.shape[1]

    @property
    def head_dim(self) -> int:
        return self.rows.shape[2]


def run(op: Op, state: StepState) -> None:
    """The op, on the first `state.n_rows` rows of its arrays."""
    match op:
        case Embed():
            embed(op, state)
        case LookUp():
            look_up(op, state)
        case NormLinear():
            norm_linear(op, state)
        case Linear():
            linear(op, state)
        case Experts():
            experts(op, state)
        case AddNorm():
            add_norm(op, state)
        case Times():
            times(op, state)
        case Heads():
            heads(op, state)
        case Attention():
            attention(op, state)
        case ShortConv():
            recurrent_reference.short_conv(op, state)
        case DeltaNet():
            recurrent_reference.delta_net(op, state)
        case Mamba2() | GatedNorm():
            mamba_reference.run(op, state)
        case Gate():
            recurrent_reference.gate(op, state)


def embed(op: Embed[Tensor, TorchMatrix], state: StepState) -> None:
    token_ids = torch.from_numpy(state.token_ids).to(op.out.device)
    rows = op.table.weights[token_ids] * op.scale
    if op.positions is not None:
        table = op.positions.view(-1, op.table.n_in)
        rows = rows + table[state.pos : state.pos + state.n_rows]
    op.out[: state.n_rows].copy_(rows)


def look_up(op: LookUp[Tensor], state: StepState) -> None:
    rows = torch.from_numpy(op.table.read(state.token_ids.tolist())) * op.scale
    op.out[: state.n_rows].copy_(rows)


def norm_linear(op: NormLinear[Tensor, TorchMatrix], state: StepState) -> None:
    n = state.n_rows
    x = op.residual[:n]
    if op.norm is not None:
        x = norm(x, op.norm, op.norm_bias, op.eps, centered=op.centered)
    y = _product(x, op.matrix, op.bias) * op.scale
    if op.gated:
        gate, up = y.chunk(2, dim=1)
        y = gated(gate, up, op.function)
    elif op.xielu is not None:
        y = xielu(y, op.xielu)
    elif op.function:
        y = activated(y, op.function)
    if op.softcap:
        y = softcap(y, op.softcap)
    op.out[:n].copy_(y)


def linear(op: Linear[Tensor, TorchMatrix], state: StepState) -> None:
    n = state.n_rows
    y = _product(op.x[:n], op.matrix, op.bias) * op.scale
    op.out[:n].copy_(y if op.residual is None else op.residual[:n] + y)


def experts(op: Experts[Tensor, TorchMatrix], state: StepState) -> None:
    n = state.n_rows
    x = op.x[:n]
    if op.norm is not None:
        x = norm(x, op.norm, op.norm_bias, op.eps, centered=op.centered)
    numbers = op.router[:n].float()
    chosen, weights = choose(numbers[:, : op.config.n_experts], op.config, op.selection_bias)
    if op.expert_scales is not None:
        weights = weights * op.expert_scales.float()[chosen]
    total = torch.zeros_like(x)
    for index in sorted(set(chosen.flatten().tolist())):
        rows, places = (chosen == index).nonzero(as_tuple=True)
        y = _through(op.experts, index, x[rows], op.activation)
        total.index_add_(0, rows, (weights[rows, places].unsqueeze(1) * y).to(total.dtype))
    if op.shared is not None:
        y = _through(op.shared, 0, x, op.activation)
        total += numbers[:, -1:].sigmoid().to(y.dtype) * y if op.config.shared_gate else y
    y = op.scale * total
    op.out[:n].copy_(y if op.residual is None else op.residual[:n] + y)


def _through(expert: Expert[Tensor, TorchMatrix], index: int, x: Tensor, activation: str) -> Tensor:
    """What one of the experts makes of rows of x."""

    def bias(of_all: Tensor | None) -> Tensor | None:
        return None if of_all is None else of_all.view(len(expert.down), -1)[index]

    inner = _product(x, expert.gate_up[index], bias(expert.b_gate_up))
    if expert.has_gates:
        gate, up = inner.chunk(2, dim=1)
        inner = gated(gate, up, activation)
    else:
        inner = activated(inner, activation)
    return _product(inner, expert.down[index], bias(expert.b_down))


def gated(gate: Tensor, up: Tensor, function: str) -> Tensor:
    if function == "clamped":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1.0)
    return activated(gate, function) * up


def add_norm(op: AddNorm[Tensor], state: StepState) -> None:
    n = state.n_rows
    x = op.x[:n]
    parts = x.view(n, -1, op.norm.shape[0])
    y = op.scale * rms_norm(parts, op.norm, op.eps).view(x.shape)
    y = y if op.residual is None else op.residual[:n] + y
    op.out[:n].copy_(y if op.factor is None else y * op.factor)


def times(op: Times[Tensor], state: StepState) -> None:
    n, end = state.n_rows, op.begin + op.x.shape[1]
    op.x[:n].mul_(op.others[:n, op.begin : end])


def heads(op: Heads[Tensor], state: StepState) -> None:
    rows, here = state.n_rows, slice(state.pos, state.pos + state.n_rows)
    ends = (op.n_heads, op.n_heads + op.n_kv_heads)
    whole = op.qkv[:rows].view(rows, -1, op.head_dim)
    queries, keys, values = whole.tensor_split(ends, dim=1)
    parts = ((queries, op.q_norm), (keys, op.k_norm), (values, op.v_norm))
    for part, weight in parts if op.has_keys else parts[:1]:
        changed = part
        if part is not values and op.cos is not None and op.sin is not None:
            changed = rope(changed, op.cos[here], op.sin[here])
        if weight is not None:
            # One norm of all heads is that of one wide head.
            shape = (rows, -1) if op.over_all else part.shape
            changed = changed.reshape(shape)
            own = weight.view(changed.shape[1:])
            changed = norm(changed, own, None, op.eps, centered=op.centered).view(part.shape)
        if part is queries and op.q_scales is not None:
            changed = (changed * op.q_scales[here].view(-1, 1, 1)).to(part.dtype)
        part.copy_(changed)


def attention(op: Attention[Tensor, TorchHeadRows], state: StepState) -> None:
    """Row r is at position i = pos + r and sees key j iff j <= i and (window == 0 or
    i - j < window).
    """
    rows, pos = state.n_rows, state.pos
    n_heads, n_kv_heads, head_dim = op.n_heads, op.k_cache.n_kv_heads, op.k_cache.head_dim
    k_cache, v_cache = op.k_cache.rows, op.v_cache.rows
    heads = op.qkv[:rows].view(rows, -1, head_dim)
    queries, keys, values = heads.tensor_split((n_heads, n_heads + n_kv_heads), dim=1)
    here = slice(pos, pos + rows)
    if op.q_norm is not None:
        queries = rms_norm(queries, op.q_norm, op.eps)
    cos, sin = op.cos[here], op.sin[here]
    queries = rope(queries, cos, sin)
    if op.stores:
        if op.k_norm is not None:
            keys = rms_norm(keys, op.k_norm, op.eps)
        k_cache[:, here] = rope(keys, cos, sin).transpose(0, 1).to(k_cache.dtype)
        v_cache[:, here] = values.transpose(0, 1).to(v_cache.dtype)
    result = attend(
        queries,
        k_cache,
        v_cache,
        pos=pos,
        window=op.window,
        scale=op.scale,
        cap=op.softcap,
        sinks=op.sinks,
    )
    op.out[:rows].view(rows, n_heads, head_dim).copy_(result)


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, centered: bool) -> Tensor:
    """RMSNorm, or LayerNorm if it is centered, plus bias; in float32, rounded once."""
    wide = x.float()
    if centered:
        wide = wide - wide.mean(-1, keepdim=True)
    y = rms_norm(wide, weight, eps)
    return (y if bias is None else y + bias.float()).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in float32, rounded once."""
    wide = x.float()
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse * weight.float()).to(x.dtype)


def rope(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (NEOX halves) of heads (rows, n, hd) with cos, sin (rows, rotary / 2).

    The part of a head beyond the rotary dimension stays as it is.
    """
    half = cos.shape[1]
    wide, cosine, sine = heads.float(), cos.unsqueeze(1), sin.unsqueeze(1)
    first, second, rest = wide.tensor_split((half, 2 * half), dim=2)
    rotated = (first * cosine - second * sine, second * cosine + first * sine, rest)
    return torch.cat(rotated, dim=2).to(heads.dtype)


def attend(
    queries: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    pos: int,
    window: int,
    scale: float,
    cap: float = 0.0,
    sinks: Tensor | None = None,
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
    if cap or sinks is not None:
        visible = _visible(queries, pos=pos, start=start, window=window)
        return _attend_plainly(grouped, keys, values, visible, scale=scale, cap=cap, sinks=sinks)
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


def _attend_plainly(
    grouped: Tensor,
    keys: Tensor,
    values: Tensor,
    visible: Tensor,
    *,
    scale: float,
    cap: float,
    sinks: Tensor | None,
) -> Tensor:
    """The same with capped scores or sinks: torch has no op of its own for them. `grouped`: queries
    (rows, n_kv, group, hd); keys and values (n_kv, 1, L, hd).
    """
    rows, n_kv_heads, group, head_dim = grouped.shape
    scores = (grouped.permute(1, 2, 0, 3) @ keys.transpose(2, 3)).float() * scale
    scores = (softcap(scores, cap) if cap else scores).masked_fill(~visible, float("-inf"))
    if sinks is not None:
        column = sinks.float().view(n_kv_heads, group, 1, 1).expand(-1, -1, rows, 1)
        scores = torch.cat((scores, column), dim=-1)
    probs = scores.softmax(-1)[..., : keys.shape[2]]
    result = probs.to(values.dtype) @ values  # (n_kv, group, rows, hd)
    return result.permute(2, 0, 1, 3).reshape(rows, n_kv_heads * group, head_dim)


def activated(x: Tensor, function: str) -> Tensor:
    """`function`: an Activation of checkpoint/config.py."""
    match function:
        case "silu":
            return F.silu(x)
        case "relu2":
            return F.relu(x).square()
        case _:
            return F.gelu(x, approximate="tanh" if function == "gelu_tanh" else "none")


def xielu(x: Tensor, curve: Xielu) -> Tensor:
    line = curve.beta * x
    bend = torch.expm1(x.clamp(max=curve.eps)) - x
    return torch.where(x > 0, curve.positive * x * x, curve.negative * bend) + line


def softcap(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


def _product(x: Tensor, matrix: TorchMatrix, bias: Tensor | None) -> Tensor:
    """matrix times x (rows, n_in), plus bias: (rows, n_out)."""
    product = x @ matrix.weights.t()
    return product if bias is None else product + bias


def _visible(queries: Tensor, *, pos: int, start: int, window: int) -> Tensor:
    """Boolean (rows, L): the keys, from position `start` on, that each row sees."""
    end = pos + queries.shape[0]
    i = torch.arange(pos, end, device=queries.device).unsqueeze(1)
    j = torch.arange(start, end, device=queries.device)
    visible = j <= i
    return visible & (i - j < window) if window else visible
