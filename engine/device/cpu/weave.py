"""Which order of the panels of codes this processor reads faster, measured.

Some processors prefetch one long stream of memory best, in which four panels are woven, others four
short streams side by side: csrc/layout.h describes both orders, bench/RESULTS.md has figures. The
results of the ops are the same. Knows no model.
"""

import time
from functools import cache

import numpy as np

from ..arguments import Linear
from ..formats import DTYPES, matrix_bytes
from ..step import StepState
from .matrix import PanelMatrix
from .memory import zeros
from .program import CpuProgram

_N_OUT, _N_IN = 1024, 2048
_N_BYTES = 48 * 2**20  # more than most processors cache
_ROUNDS = 4


@cache
def is_woven_faster(format_: str, isa: str) -> bool:
    """For matrices of `format_`, multiplied by one row with the instruction set `isa`, which is the
    one in use. Measures for some 50 ms, once per process.

    False where nothing can be measured, because another thread of the process runs ops.
    """
    if format_ in DTYPES:
        return False
    # Not zero: pages that were never written all share one page of zeros.
    weights = np.full(_N_BYTES, 0x11, np.uint8)
    try:
        apart, woven = (_program(weights, format_, is_woven=each) for each in (False, True))
        seconds = [(_seconds(apart), _seconds(woven)) for _ in range(_ROUNDS)]
    except RuntimeError:
        return False
    return min(each[1] for each in seconds) < min(each[0] for each in seconds)


def _program(weights: np.ndarray, format_: str, *, is_woven: bool) -> CpuProgram:
    """Products with matrices that together fill `weights`."""
    n_bytes = matrix_bytes(format_, _N_OUT, _N_IN)
    x, out = zeros((1, _N_IN), np.float32), zeros((1, _N_OUT), np.float32)
    program = CpuProgram(max_rows=1)
    for begin in range(0, len(weights) - n_bytes + 1, n_bytes):
        panels = weights[begin : begin + n_bytes]
        matrix = PanelMatrix(panels, _N_OUT, _N_IN, format_, is_woven)
        program.append(Linear(x=x, matrix=matrix, bias=None, out=out))
    return program


def _seconds(program: CpuProgram) -> float:
    state = StepState(1)
    state.set([0], 0)
    begin = time.perf_counter()
    program.run(state)
    return time.perf_counter() - begin
