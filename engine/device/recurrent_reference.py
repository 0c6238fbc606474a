"""The ops of recurrent layers in plain torch: the fallback without native code, and the oracle of
the tests.

Owns their meaning; `arguments.py` has their shapes. Knows nothing of models or native code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..checkpoint.recurrent import StateShape
from .arguments import DeltaNet, Gate, ShortConv
from .ops import Bytes
from .step import StateWords, StepState

_MOST_SAVES = 2  # as csrc/recurrent.h has it
_UNIT_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class TorchSlots:
    """The states of one layer."""

    slots: Tensor  # float32 (n_slots, n_state)
    log: Tensor  # float32 (n_logged, n_row)
    words: StateWords

    @property
    def n_slots(self) -> int:
        return self.slots.shape[0]


class TorchStates:
    """Those of all layers."""

    def __init__(
        self, shapes: Sequence[StateShape], device: torch.device, *, n_slots: int, n_logged: int
    ) -> None:
        self.words: StateWords = np.zeros(4 + 2 * _MOST_SAVES, np.int64)
        self.layers = [
            TorchSlots(
                torch.zeros((n_slots, shape.n_state), device=device),
                torch.zeros((n_logged, shape.n_row), device=device),
                self.words,
            )
            for shape in shapes
        ]
        self.slot_bytes = 4 * sum(shape.n_state for shape in shapes)

    def copy_out(self, slot: int, out: Bytes) -> None:
        whole = torch.cat([layer.slots[slot] for layer in self.layers])
        out[:] = whole.cpu().numpy().view(np.uint8)

    def copy_in(self, slot: int, copied: Bytes) -> None:
        whole = torch.from_numpy(copied.view(np.float32).copy())
        parts = torch.split(whole, [layer.slots.shape[1] for layer in self.layers])
        for layer, part in zip(self.layers, parts, strict=True):
            layer.slots[slot].copy_(part)


class Step(NamedTuple):
    """A row that the states go through."""

    place: int | None  # in the pass; None: an earlier row, from the log
    row: Tensor  # what is logged of it


def short_conv(op: ShortConv[Tensor, TorchSlots], state: StepState) -> None:
    dim = op.out.shape[1]
    b, c, x = op.x[: state.n_rows].float().chunk(3, dim=1)
    weights = op.conv.float().view(dim, op.kernel).t()  # (kernel, dim)
    bias = None if op.bias is None else op.bias.float()

    def take(step: Step, whole: Tensor) -> None:
        rows = shifted(whole.view(op.kernel - 1, dim), step.row)
        if step.place is not None:
            y = (rows * weights).sum(0)
            y = y if bias is None else y + bias
            op.out[step.place].copy_(c[step.place] * y)

    walk(op.states, state, b * x, take)


def delta_net(op: DeltaNet[Tensor, TorchSlots], state: StepState) -> None:
    config = op.config
    n_heads, conv_dim = config.n_v_heads, config.conv_dim
    group, n_tail = n_heads // config.n_k_heads, (config.kernel - 1) * conv_dim
    key_dim = config.n_k_heads * config.k_dim
    x = op.x[: state.n_rows].float()
    z = x[:, -config.out_dim :].view(-1, n_heads, config.v_dim)
    weights = op.conv.float().view(conv_dim, config.kernel).t()
    rates = op.a_log.float() if config.has_rates else -op.a_log.float().exp()

    def take(step: Step, whole: Tensor) -> None:
        mixed, b, a = step.row.tensor_split((conv_dim, conv_dim + n_heads))
        rows = shifted(whole[:n_tail].view(config.kernel - 1, conv_dim), mixed)
        q, k, v = F.silu((rows * weights).sum(0)).tensor_split((key_dim, 2 * key_dim))
        q, k = (_unit(each.view(-1, config.k_dim)) for each in (q, k))
        if config.takes_turns:
            q, k = q.repeat(group, 1), k.repeat(group, 1)
        else:
            q, k = q.repeat_interleave(group, 0), k.repeat_interleave(group, 0)
        decay = torch.exp(rates * F.softplus(a + op.dt_bias.float()))
        s = whole[n_tail:].view(n_heads, config.k_dim, config.v_dim)
        s.mul_(decay.view(-1, 1, 1))
        known = (s * k.unsqueeze(2)).sum(1)  # (n_heads, v_dim)
        delta = b.sigmoid().unsqueeze(1) * (v.view(n_heads, -1) - known)
        s.add_(k.unsqueeze(2) * delta.unsqueeze(1))
        if step.place is not None:
            y = (s * q.unsqueeze(2)).sum(1) * config.k_dim**-0.5
            y = F.rms_norm(y, (config.v_dim,), op.norm.float(), op.eps) * F.silu(z[step.place])
            op.out[step.place].copy_(y.flatten())

    walk(op.states, state, x[:, : conv_dim + 2 * n_heads], take)


def gate(op: Gate[Tensor], state: StepState) -> None:
    n = state.n_rows
    op.x[:n] *= op.gate[:n].sigmoid()


def walk(
    states: TorchSlots, state: StepState, rows: Tensor, take: Callable[[Step, Tensor], None]
) -> None:
    """Brings the state that the words name through the logged rows and these; `take` gets each of
    them with the state, which it changes.
    """
    source, source_pos, target, n_saves, *rest = states.words.tolist()
    saves = dict(zip(rest[_MOST_SAVES:][:n_saves], rest, strict=False))
    whole = states.slots[source].clone() if source >= 0 else torch.zeros_like(states.slots[0])
    for pos, step in enumerate(_steps(states, state, rows, source_pos), start=source_pos + 1):
        take(step, whole)
        if pos in saves:
            states.slots[saves[pos]].copy_(whole)
    states.slots[target].copy_(whole)


def _steps(states: TorchSlots, state: StepState, rows: Tensor, source_pos: int) -> Iterator[Step]:
    n_logged = len(states.log)
    for pos in range(source_pos, state.pos):
        yield Step(None, states.log[pos % n_logged])
    for index, row in enumerate(rows):
        states.log[(state.pos + index) % n_logged, : len(row)].copy_(row)
        yield Step(index, row)


def shifted(tail: Tensor, row: Tensor) -> Tensor:
    """The rows that the convolution sees, (kernel, n); the tail goes on by one row."""
    rows = torch.cat((tail, row.unsqueeze(0)))
    tail.copy_(rows[1:])
    return rows


def _unit(heads: Tensor) -> Tensor:
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + _UNIT_EPS)
