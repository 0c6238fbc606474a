"""The ops of Mamba 2 in plain torch: the fallback without native code, and the oracle of the tests.

Owns their meaning; `arguments.py` has their shapes. Knows nothing of models or native code.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint.recurrent import Mamba2Config
from .arguments import GatedNorm, Mamba2
from .recurrent_reference import Step, TorchSlots, shifted, walk
from .step import StepState


def run(op: Mamba2[Tensor, TorchSlots] | GatedNorm[Tensor], state: StepState) -> None:
    """The op, on the first `state.n_rows` rows of its arrays."""
    if isinstance(op, Mamba2):
        mamba2(op, state)
    else:
        gated_norm(op, state)


def mamba2(op: Mamba2[Tensor, TorchSlots], state: StepState) -> None:
    config = op.config
    n_heads, conv_dim, n_tail = config.n_heads, config.conv_dim, _n_tail(config)
    weights = op.conv.float().view(conv_dim, config.kernel).t()
    rates = op.a_log.float() if config.has_rates else -op.a_log.float().exp()
    least, most = config.dt_limits
    group = n_heads // config.n_groups

    def take(step: Step, whole: Tensor) -> None:
        mixed, dt = step.row[: conv_dim + n_heads].tensor_split((conv_dim,))
        rows = shifted(whole[:n_tail].view(config.kernel - 1, conv_dim), mixed)
        y = (rows * weights).sum(0)
        y = y if op.conv_bias is None else y + op.conv_bias.float()
        ends = (config.out_dim, config.out_dim + config.bc_dim)
        x, b, c = (F.silu(part) for part in y.tensor_split(ends))
        x = x.view(n_heads, config.head_dim)
        b, c = (
            part.view(config.n_groups, -1).repeat_interleave(group, 0).unsqueeze(1)
            for part in (b, c)
        )  # (n_heads, 1, state_dim)
        time = F.softplus(dt + op.dt_bias.float()).clamp(least, most)
        n_state = n_heads * config.head_dim * config.state_dim
        s = whole[n_tail : n_tail + n_state].view(n_heads, config.head_dim, config.state_dim)
        s.mul_(torch.exp(rates * time).view(-1, 1, 1))
        s.add_((time.unsqueeze(1) * x).unsqueeze(2) * b)
        if step.place is not None:
            out = (s * c).sum(2) + op.skip.float().unsqueeze(1) * x
            op.out[step.place].copy_(out.flatten())

    x = op.x[: state.n_rows, config.out_dim :].float() * _scales(config, op.x.device)
    walk(op.states, state, x, take)


def gated_norm(op: GatedNorm[Tensor], state: StepState) -> None:
    x = op.x[: state.n_rows].float()
    n = x.shape[1]
    gate = F.silu(op.gate[: state.n_rows, :n].float() * op.gate_scale)
    if op.norm is None:
        y = x * gate
    else:
        y = _normed(x * gate if op.gate_first else x, op.norm.float(), op.n_groups, op.eps)
        y = y if op.gate_first else y * gate
    op.x[: state.n_rows].copy_(y)


def _normed(x: Tensor, norm: Tensor, n_groups: int, eps: float) -> Tensor:
    groups = x.view(len(x), n_groups, -1)
    return F.rms_norm(groups, groups.shape[2:], eps=eps).view(x.shape) * norm


def _n_tail(config: Mamba2Config) -> int:
    return (config.kernel - 1) * config.conv_dim


def _scales(config: Mamba2Config, device: torch.device) -> Tensor:
    """Of x, B, C and dt."""
    scales = config.scales
    widths = (config.out_dim, config.bc_dim, config.bc_dim, config.n_heads)
    parts = zip((scales.x, scales.b, scales.c, scales.dt), widths, strict=True)
    return torch.cat([torch.full((width,), scale, device=device) for scale, width in parts])
