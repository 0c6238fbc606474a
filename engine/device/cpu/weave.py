"""Which order of the panels of codes this processor reads fastest, measured.

Some processors read one long stream of memory best, in which four panels are woven, others four
short streams side by side, and some keep up with the long one only if it is fetched ahead:
csrc/layout.h describes the orders, bench/RESULTS.md has figures. The results of the ops are the
same. Knows no model.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ..arguments import Linear
from ..formats import DTYPES, matrix_bytes
from ..step import StepState
from .matrix import PanelMatrix
from .memory import LargePages, Scratch, zeros
from .program import CpuProgram

# The times of a single format scatter; those of three together seldom mislead. A processor's best
# order is that of all formats, but for one that takes long to unpack (bench/RESULTS.md, Zen 3).
_SAMPLE = ("8bit", "4bit", "q4_k")
_UNLIKE = ("q2_k",)
_N_OUT, _N_IN = 1024, 2048
_N_BYTES = 48 * 2**20  # more than most processors cache
# Memory may change its speed within a round, and a single time may be lucky. So as many rounds are
# measured as it takes until the first few agree, or this many have been.
_MOST_ROUNDS, _AGREEING = 9, 3


class Order(NamedTuple):
    """How four panels lie in memory, and how one row reads them: see csrc/layout.h."""

    is_woven: bool
    is_fetched: bool


APART = Order(is_woven=False, is_fetched=False)
# Where memory is what limits all of them, they take the same time, until memory becomes faster. So
# an order is preferred to those after it unless one of them takes a few percent less time.
_ORDERS = (Order(is_woven=True, is_fetched=True), Order(is_woven=True, is_fetched=False), APART)
_EQUAL = 1.03


def fastest_order(format_: str, isa: str, memory: LargePages) -> Order:
    """For matrices of `format_`, multiplied by one row with the instruction set `isa`, which is the
    one in use. Measures for 10 to 100 ms, once per process for almost all formats, in `memory` that
    is still free: if it is new, the system may take longer to give it.

    APART where nothing can be measured, because another thread of the process runs ops.
    """
    if format_ in DTYPES:
        return APART
    sample = (format_,) if format_ in _UNLIKE else _SAMPLE
    known = _known(isa)
    if sample not in known:
        known[sample] = _measured(sample, memory)
    return known[sample]


@cache
def _known(isa: str) -> dict[tuple[str, ...], Order]:
    """By sample of formats: what has been measured in this process."""
    return {}


def _measured(sample: Sequence[str], memory: LargePages) -> Order:
    weights = memory.ahead(_N_BYTES)
    weights.fill(0x11)  # pages that were never written may all share one page of zeros
    parts = np.split(weights, len(_ORDERS))
    scratch = Scratch()  # one, because each begins with a large page that is new
    try:
        programs = {
            (format_, order): [_program(part, format_, order, scratch) for part in parts]
            for format_ in sample
            for order in _ORDERS
        }
        for program in programs[sample[0], _ORDERS[0]]:  # the first run of all takes longer
            _seconds(program)
        return decided(_round(programs, sample, n) for n in range(_MOST_ROUNDS))
    except RuntimeError:
        return APART


def _round(
    programs: Mapping[tuple[str, Order], Sequence[CpuProgram]], sample: Sequence[str], number: int
) -> Mapping[Order, float]:
    """The seconds of each order, for one part of the memory in each format. The parts are read in
    the same order again and again, so that none is in a cache, and the orders take turns.
    """
    times = dict.fromkeys(_ORDERS, 0.0)
    for format_ in sample:
        for part in range(len(_ORDERS)):
            order = _ORDERS[(part + number) % len(_ORDERS)]
            times[order] += _seconds(programs[format_, order][part])
    return times


def decided(rounds: Iterable[Mapping[Order, float]]) -> Order:
    """The order to take, from the seconds that each took in some rounds. Takes no more rounds than
    needed: a few that agree are enough, otherwise the medians of all decide.
    """
    seen: list[Mapping[Order, float]] = []
    for each in rounds:
        seen.append(each)
        if len(seen) == _AGREEING and len({_fastest([one]) for one in seen}) == 1:
            break
    return _fastest(seen)


def _fastest(rounds: Sequence[Mapping[Order, float]]) -> Order:
    """By the medians of the times beside the first order's of the same round."""
    first = _ORDERS[0]
    times = {order: _middle(each[order] / each[first] for each in rounds) for order in _ORDERS}
    limit = _EQUAL * min(times.values())
    return next(order for order in _ORDERS if times[order] <= limit)


def _middle(numbers: Iterable[float]) -> float:
    """The median of an odd number of them. Not that of `statistics` or numpy: at every start they
    would import much for it.
    """
    ascending = sorted(numbers)
    return ascending[len(ascending) // 2]


def _program(weights: np.ndarray, format_: str, order: Order, scratch: Scratch) -> CpuProgram:
    """Products with matrices that together fill `weights`."""
    n_bytes = matrix_bytes(format_, _N_OUT, _N_IN)
    x, out = zeros((1, _N_IN), np.float32), zeros((1, _N_OUT), np.float32)
    program = CpuProgram(max_rows=1, scratch=scratch)
    for begin in range(0, len(weights) - n_bytes + 1, n_bytes):
        panels = weights[begin : begin + n_bytes]
        matrix = PanelMatrix(panels, _N_OUT, _N_IN, format_, *order)
        program.append(Linear(x=x, matrix=matrix, bias=None, out=out))
    return program


def _seconds(program: CpuProgram) -> float:
    state = StepState(1)
    state.set([0], 0)
    begin = time.perf_counter()
    program.run(state)
    return time.perf_counter() - begin
