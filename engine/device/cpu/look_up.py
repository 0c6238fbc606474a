"""Rows of tables that stay in their files, read before the ops of a pass run.

Owns which of them a pass needs. Knows no tape.
"""

import time

import numpy as np

from ..arguments import LookUp
from ..ops import OpTime
from ..step import StepState
from .memory import Floats

# So few rows that what is made of them stays in the processor's cache.
_AT_ONCE = 16


class LookUps:
    """Those of one program. They depend on the token ids alone."""

    def __init__(self) -> None:
        self._ops: list[LookUp[Floats]] = []

    def append(self, op: LookUp[Floats]) -> None:
        self._ops.append(op)

    def run(self, state: StepState) -> None:
        """Raises ModelLoadError when a file has changed."""
        for op in self._ops:
            _run(op, state)

    def profile(self, state: StepState) -> list[OpTime]:
        """Runs like `run`. The bytes are none of those that are loaded."""
        times = []
        for op in self._ops:
            begin = time.perf_counter_ns()
            _run(op, state)
            times.append(OpTime(f"look_up {op.table.n_in}", time.perf_counter_ns() - begin, 0))
        return times


def _run(op: LookUp[Floats], state: StepState) -> None:
    token_ids, scale = state.token_ids.tolist(), np.float32(op.scale)
    for begin in range(0, state.n_rows, _AT_ONCE):
        rows = op.table.read(token_ids[begin : begin + _AT_ONCE])
        np.multiply(rows, scale, out=op.out[begin : begin + len(rows)])
