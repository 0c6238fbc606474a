"""What the recorded passes of all native devices have in common.

Owns how many rows a pass may have, how far its positions may reach, and the times of its ops. Knows
no memory.
"""

from collections.abc import Sequence
from typing import Any

from .arguments import DeltaNet, Experts, Linear, Mamba2, NormLinear, Op
from .ops import OpTime
from .step import StepState


class PassLimits:
    """What memory allows: it shrinks with every op that is recorded."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self._max_seq_len: int | None = None

    def fit_rows(self, n_rows: int) -> None:
        """An array has room for `n_rows` rows."""
        self.max_rows = min(self.max_rows, n_rows)

    def fit_positions(self, n_positions: int) -> None:
        """A cache or a table has room for `n_positions` positions."""
        self._max_seq_len = min(n_positions, self._max_seq_len or n_positions)

    def has_position(self, pos: int) -> bool:
        return self._max_seq_len is None or pos < self._max_seq_len

    def check(self, state: StepState) -> None:
        """Raises ValueError for a pass that has no room."""
        n_rows = state.n_rows
        if not 1 <= n_rows <= self.max_rows:
            raise ValueError(f"a pass has 1 to {self.max_rows} rows, not {n_rows}")
        end = state.pos + n_rows
        if self._max_seq_len is not None and not n_rows <= end <= self._max_seq_len:
            raise ValueError(f"positions up to {end}, of {self._max_seq_len}")


def op_times(ops: Sequence[Op], names: Sequence[str], all_ns: Sequence[int]) -> list[OpTime]:
    """The time of each op; its name has the shape of its matrix."""
    return [_op_time(op, name, ns) for op, name, ns in zip(ops, names, all_ns, strict=True)]


def _op_time(op: Op, name: str, ns: int) -> OpTime:
    if isinstance(op, Experts):
        return OpTime(_experts_name(op, name), ns, _bytes_of_used(op))
    if isinstance(op, DeltaNet):
        heads = f"{op.config.n_v_heads} heads of {op.config.k_dim}x{op.config.v_dim}"
        return OpTime(f"{name} {heads}", ns, _bytes_of_step(op))
    if isinstance(op, Mamba2):
        heads = f"{op.config.n_heads} heads of {op.config.head_dim}x{op.config.state_dim}"
        return OpTime(f"{name} {heads}", ns, _bytes_of_step(op))
    if not isinstance(op, NormLinear | Linear):
        return OpTime(name, ns, 0)
    matrix = op.matrix
    return OpTime(f"{name} {matrix.n_out}x{matrix.n_in} {matrix.format}", ns, matrix.n_bytes)


def _experts_name(op: Experts[Any, Any], name: str) -> str:
    used, up, down = op.config, op.experts.gate_up[0], op.experts.down[0]
    shared = "" if op.shared is None else " and a shared one"
    formats = " ".join(dict.fromkeys((up.format, down.format)))
    return f"{name} {used.n_used} of {used.n_experts}{shared} {up.n_out}x{up.n_in} {formats}"


def _bytes_of_step(op: DeltaNet[Any, Any] | Mamba2[Any, Any]) -> int:
    """Of the state, which is read and written, and of the convolution's weights."""
    config = op.config
    return 4 * (2 * config.state_shape.n_state + config.conv_dim * config.kernel)


def _bytes_of_used(op: Experts[Any, Any]) -> int:
    """Of the weights that one row reads."""
    parts = op.config.n_used * (op.experts.gate_up[0].n_bytes + op.experts.down[0].n_bytes)
    if op.shared is not None:
        parts += op.shared.gate_up[0].n_bytes + op.shared.down[0].n_bytes
    return int(parts)
