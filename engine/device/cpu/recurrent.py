"""Recurrent layers on the CPU: the memory of their states, and their ops on a tape.

Owns the layout of states as csrc/recurrent.h describes it. Knows no position: the words say which
slots a pass uses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...checkpoint.recurrent import Mamba2Config, StateShape
from ...native import cpu as native
from ...native.cpu import kernels
from ..arguments import DeltaNet, Gate, GatedNorm, Mamba2, ShortConv
from ..ops import Bytes
from ..step import StateWords
from .memory import Floats, zeros

N_WORDS = 4 + 2 * kernels.MOST_SAVES
_LANES = 16  # heads are multiples of this


@dataclass(frozen=True, slots=True)
class SlotStates:
    """The states of one layer."""

    slots: Floats  # (n_slots, n_state)
    log: Floats  # (n_logged, n_row)
    words: StateWords

    @property
    def n_slots(self) -> int:
        return len(self.slots)


class CpuStates:
    """Those of all layers. The system gives their memory when it is first used."""

    def __init__(self, shapes: Sequence[StateShape], *, n_slots: int, n_logged: int) -> None:
        self.words: StateWords = np.zeros(N_WORDS, np.int64)
        self.layers = [
            SlotStates(
                zeros((n_slots, shape.n_state), np.float32),
                zeros((n_logged, shape.n_row), np.float32),
                self.words,
            )
            for shape in shapes
        ]
        self.slot_bytes = sum(layer.slots[0].nbytes for layer in self.layers)

    def copy_out(self, slot: int, out: Bytes) -> None:
        begin = 0
        for layer in self.layers:
            state = layer.slots[slot].view(np.uint8)
            out[begin : begin + state.size] = state
            begin += state.size

    def copy_in(self, slot: int, copied: Bytes) -> None:
        begin = 0
        for layer in self.layers:
            state = layer.slots[slot].view(np.uint8)
            state[:] = copied[begin : begin + state.size]
            begin += state.size


# The address of an array of this name (rows, n), or of one (n,); 0 for None.
Address = Callable[[str, Floats | None, int], int]


@dataclass(frozen=True, slots=True)
class RecurrentOps:
    """Appends ops to a tape, and keeps what they point to."""

    tape: kernels.Tape
    rows: Address
    vector: Address
    kept: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def short_conv(self, op: ShortConv[Floats, SlotStates]) -> None:
        dim = op.out.shape[1]
        kernels.append_short_conv(
            self.tape,
            x=self.rows("x", op.x, 3 * dim),
            states=_states(op.states, StateShape((op.kernel - 1) * dim, dim)),
            conv=self._conv(op.conv, op.kernel, dim),
            bias=self.vector("bias", op.bias, dim),
            kernel=op.kernel,
            dim=dim,
            out=self.rows("out", op.out, dim),
        )

    def delta_net(self, op: DeltaNet[Floats, SlotStates]) -> None:
        config = op.config
        if config.k_dim % _LANES or config.v_dim % _LANES:
            raise ValueError(
                f"k_dim, v_dim: {config.k_dim} and {config.v_dim} must be multiples of {_LANES}"
            )
        kernels.append_delta_net(
            self.tape,
            x=self.rows("x", op.x, config.in_dim),
            states=_states(op.states, config.state_shape),
            conv=self._conv(op.conv, config.kernel, config.conv_dim),
            kernel=config.kernel,
            n_k_heads=config.n_k_heads,
            n_v_heads=config.n_v_heads,
            k_dim=config.k_dim,
            v_dim=config.v_dim,
            takes_turns=config.takes_turns,
            a_log=self.vector("a_log", op.a_log, config.n_v_heads),
            is_rate=config.has_rates,
            dt_bias=self.vector("dt_bias", op.dt_bias, config.n_v_heads),
            norm=self.vector("norm", op.norm, config.v_dim),
            eps=op.eps,
            out=self.rows("out", op.out, config.out_dim),
        )

    def mamba2(self, op: Mamba2[Floats, SlotStates]) -> None:
        config = op.config
        if config.head_dim % _LANES or config.state_dim % 2:
            raise ValueError(
                f"head_dim, state_dim: {config.head_dim} must be a multiple of {_LANES}, "
                f"{config.state_dim} of 2"
            )
        least, most = config.dt_limits
        native.check("conv", op.conv, (config.conv_dim * config.kernel,), np.float32)
        conv = (op.conv.reshape(config.conv_dim, -1) * _channel_scales(config)).ravel()
        kernels.append_mamba2(
            self.tape,
            x=self.rows("x", op.x, config.in_dim),
            states=_states(op.states, config.state_shape),
            conv=self._conv(conv, config.kernel, config.conv_dim),
            conv_bias=self.vector("conv_bias", op.conv_bias, config.conv_dim),
            kernel=config.kernel,
            n_heads=config.n_heads,
            n_groups=config.n_groups,
            head_dim=config.head_dim,
            state_dim=config.state_dim,
            chunk_heads=config.chunk_heads,
            a_log=self.vector("a_log", op.a_log, config.n_heads),
            is_rate=config.has_rates,
            dt_bias=self.vector("dt_bias", op.dt_bias, config.n_heads),
            dt_scale=config.scales.dt,
            dt_min=least,
            dt_max=most,
            skip=self.vector("skip", op.skip, config.n_heads),
            out=self.rows("out", op.out, config.out_dim),
        )

    def gated_norm(self, op: GatedNorm[Floats]) -> None:
        width, pitch = op.x.shape[1], op.gate.shape[1]
        if width > pitch or width % op.n_groups:
            raise ValueError(f"n_groups: {op.n_groups} in {width} columns, gates in {pitch}")
        kernels.append_gated_norm(
            self.tape,
            x=self.rows("x", op.x, width),
            gate=self.rows("gate", op.gate, pitch),
            pitch=pitch,
            gate_scale=op.gate_scale,
            norm=self.vector("norm", op.norm, width),
            width=width,
            n_groups=op.n_groups,
            is_gate_first=op.gate_first,
            eps=op.eps,
        )

    def gate(self, op: Gate[Floats]) -> None:
        width = op.x.shape[1]
        kernels.append_gate(
            self.tape,
            x=self.rows("x", op.x, width),
            gate=self.rows("gate", op.gate, width),
            width=width,
        )

    def _conv(self, conv: Floats, kernel: int, n_channels: int) -> int:
        """Weights with one row of the kernel after the other."""
        if not 1 <= kernel <= kernels.MOST_CONV_ROWS:
            raise ValueError(f"kernel: must be 1 to {kernels.MOST_CONV_ROWS}, not {kernel}")
        native.check("conv", conv, (n_channels * kernel,), np.float32)
        self.kept.append(np.ascontiguousarray(conv.reshape(n_channels, kernel).T))
        return native.address(self.kept[-1])


def _channel_scales(config: Mamba2Config) -> Floats:
    """Of the channels of the convolution, (conv_dim, 1)."""
    scales, widths = config.scales, (config.out_dim, config.bc_dim, config.bc_dim)
    return np.repeat(np.array([scales.x, scales.b, scales.c], np.float32), widths)[:, None]


def _states(states: SlotStates, shape: StateShape) -> kernels.States:
    """Raises ValueError for states of another layer."""
    slots, log = states.slots, states.log
    native.check("states", slots, (len(slots), shape.n_state), np.float32)
    native.check("log", log, (len(log), shape.n_row), np.float32)
    return kernels.States(
        slots=native.address(slots),
        n_state=shape.n_state,
        log=native.address(log),
        n_row=shape.n_row,
        n_logged=len(log),
        words=native.address(states.words),
    )
