"""The states of recurrent layers: at which positions they are held, and which a pass begins with.

Owns that bookkeeping, and the promise that the last `KEPT_ROWS` rows can be taken back. A state
cannot be cut back, so states at a few earlier positions stay in slots of their own, and a log holds
the latest rows: a pass begins with the nearest state before it and goes over the rows in between
once more, which gives the same bits. Knows no token and no layer.
"""

from collections.abc import Sequence

import numpy as np

from ..checkpoint.config import ModelConfig
from ..checkpoint.recurrent import StateShape
from ..device.arguments import States
from ..device.ops import Bytes, Ops

KEPT_ROWS = 16
"""How many rows can be taken back in any case: those of the longest pass over a draft."""
_N_LOGGED = 2 * KEPT_ROWS
# Two slots take turns as the newest state, so that a pass that is aborted leaves the other. Two
# more hold those at the last two multiples of KEPT_ROWS.
_NEWEST, _N_SLOTS = (0, 1), 4
_ZEROS = -1  # instead of a slot: the state before the first row


def state_bytes(config: ModelConfig) -> int:
    """What the states of a sequence take, whatever its length."""
    shapes = config.state_shapes
    return 4 * sum(_N_SLOTS * shape.n_state + _N_LOGGED * shape.n_row for shape in shapes)


def snapshot_bytes(config: ModelConfig) -> int:
    """What a copy of the states at one position takes."""
    return 4 * sum(shape.n_state for shape in config.state_shapes)


class RecurrentStates:
    """Of one sequence, in all recurrent layers."""

    def __init__(self, shapes: Sequence[StateShape], ops: Ops) -> None:
        self.layout = repr(tuple(shapes))
        """What the bytes of a snapshot depend on, besides the device."""
        self._memory = ops.state_memory(shapes, n_slots=_N_SLOTS, n_logged=_N_LOGGED)
        self._positions: dict[int, int] = {}
        self._log_begin = 0  # the log holds the rows from here on
        self._pending: dict[int, int] = {}  # what the pass that runs will leave

    @property
    def layers(self) -> Sequence[States]:
        return self._memory.layers

    @property
    def n_bytes(self) -> int:
        """Of a snapshot."""
        return self._memory.slot_bytes

    def clear(self) -> None:
        """Back to the state before the first row."""
        self._positions, self._pending, self._log_begin = {}, {}, 0

    def reachable(self, length: int) -> int:
        """The most rows, at most `length`, after which the states are held or can be computed from
        what is held.
        """
        # A copy: another thread may ask while a pass begins.
        held = [each for each in tuple(self._positions.values()) if each <= length]
        best = max(held, default=0)
        return length if best == length or best >= self._log_begin else best

    def begin(self, position: int, n_rows: int) -> None:
        """The next pass has `n_rows` rows from `position` on, which is reachable; states at later
        positions are forgotten.
        """
        if self.reachable(position) != position:
            raise ValueError(f"the states cannot go back to position {position}")
        end = position + n_rows
        self._positions = {slot: held for slot, held in self._positions.items() if held <= position}
        source, source_position = max(
            [(_ZEROS, 0), *self._positions.items()], key=lambda each: (each[1], -each[0])
        )
        # A single row needs no second copy: a step of a long answer reads and writes one state.
        if n_rows == 1 and source in _NEWEST and source_position == position:
            target = source
        else:
            target = min(set(_NEWEST) - {source}, key=lambda slot: self._positions.get(slot, -1))
        saves = {
            len(_NEWEST) + multiple // KEPT_ROWS % 2: multiple
            for multiple in _last_multiples(end)
            if multiple > source_position
        }
        self._pending = {**saves, target: end}
        for slot in self._pending:
            self._positions.pop(slot, None)
        self._log_begin = max(min(self._log_begin, position), end - _N_LOGGED)
        n_missing = 2 - len(saves)
        self._memory.words[:] = (
            source, source_position, target, len(saves),
            *saves, *[0] * n_missing, *saves.values(), *[0] * n_missing,
        )  # fmt: skip

    def commit(self) -> None:
        """The pass has run."""
        self._positions |= self._pending
        self._pending = {}

    def skip(self, start: int, stop: int) -> None:
        """Positions `start` to `stop` - 1 were not filled by a pass: no rows lead there."""
        self._positions = {slot: held for slot, held in self._positions.items() if held <= start}
        self._log_begin = stop

    def last_held(self, length: int) -> int:
        """The last position, at most `length`, that `holds`; 0 if there is none."""
        return max((each for each in self._positions.values() if each <= length), default=0)

    def holds(self, position: int) -> bool:
        """Whether the states after `position` rows can be copied."""
        return position in self._positions.values()

    def copy_out(self, position: int, out: Bytes) -> None:
        """Copies the states after `position` rows, which are held, into `out` (n_bytes,)."""
        slot = next(slot for slot, held in self._positions.items() if held == position)
        self._memory.copy_out(slot, out)

    def snapshot(self, position: int) -> Bytes | None:
        """The states after `position` rows, as bytes (n_bytes,); None: they are not held."""
        if not self.holds(position):
            return None
        out = np.empty(self.n_bytes, np.uint8)
        self.copy_out(position, out)
        return out

    def restore(self, position: int, copied: Bytes) -> None:
        """The states after `position` rows are those of a snapshot; nothing earlier is held."""
        self.clear()
        self._memory.copy_in(_NEWEST[0], copied)
        self._positions, self._log_begin = {_NEWEST[0]: position}, position


def _last_multiples(end: int) -> list[int]:
    last = end // KEPT_ROWS * KEPT_ROWS
    return [multiple for multiple in (last - KEPT_ROWS, last) if multiple > 0]
