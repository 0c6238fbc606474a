"""The time of a pass over several tokens, compared with a pass over one.

Owns the estimated seconds of a pass per row count: measured once, then corrected by every pass that
runs. Knows no clock; the caller reports what a pass took.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from math import inf

from ..cache.kv import KVCache
from ..model.model import MAX_DECODE_ROWS, MAX_VERIFY_ROWS, Model

GRID = (1, 2, 4, 8, 16)  # row counts that are measured; costs in between are interpolated
# Passes over long drafts are not measured: a server has no time for that when it starts. Until
# some have run, each row costs what those from 8 to 16 do.
_LONG = (32, MAX_VERIFY_ROWS)
_BY_WORTH = (1, 4, 2, 8, 16)  # the order of measuring, the most useful first, as time may run out
_ROUNDS = 2

# How far a pass moves the costs of its own row count, and of all. Mostly all change together: the
# sequence has grown, or the machine is slower for a while.
_OWN = 0.1
_COMMON = 0.15
_OWN_OF_LONG = 0.5  # there are few of them, and what interrupts one is small beside it
_REFRESH = 16  # passes until the table is computed again

UNMEASURED = (1.0, 1.1, 1.2, 1.5, 2.0)
"""Seconds by row count as long as nobody has measured: passes that mostly wait for memory."""


class RowCosts:
    """Seconds of a pass of 1 to 64 rows; more rows never take less."""

    def __init__(self, seconds: tuple[float, ...]) -> None:
        """`seconds`: one per row count in GRID. Raises ValueError unless all are positive."""
        if len(seconds) != len(GRID) or min(seconds) <= 0.0:
            raise ValueError(f"seconds of {len(GRID)} passes must be positive, not {seconds}")
        each = max(seconds[-1] - seconds[-2], 0.0) / (GRID[-1] - GRID[-2])
        self._grid = [*seconds, *(seconds[-1] + (n - GRID[-1]) * each for n in _LONG)]
        self._places = [_place(n_rows) for n_rows in range(1, MAX_VERIFY_ROWS + 1)]
        self._n_observed = 0
        self.table: list[float] = []
        """Seconds per row count; 0 for no rows. Replaced now and then, never changed in place."""
        self._refresh()

    def observe(self, n_rows: int, seconds: float) -> None:
        """A pass over `n_rows` (1 to 64) took `seconds`."""
        lower, share = self._places[n_rows - 1]
        estimate = self._estimate(lower, share)
        # An interrupted pass says little, so no pass counts as more than twice the estimate.
        ratio = min(max(seconds / estimate, 0.5), 2.0) - 1.0
        common = 1.0 + ratio * _COMMON
        self._grid = grid = [cost * common for cost in self._grid]
        is_long = n_rows > MAX_DECODE_ROWS
        own = _OWN_OF_LONG if is_long else _OWN
        grid[lower] *= 1.0 + ratio * own * (1.0 - share)
        grid[lower + 1] *= 1.0 + ratio * own * share
        self._n_observed += 1
        if is_long or self._n_observed % _REFRESH == 0:
            self._refresh()

    def _estimate(self, lower: int, share: float) -> float:
        return self._grid[lower] * (1.0 - share) + self._grid[lower + 1] * share

    def _refresh(self) -> None:
        table = [0.0]
        for lower, share in self._places:
            table.append(max(self._estimate(lower, share), table[-1]))
        self.table = table


def measure_row_costs(
    model: Model, cache: KVCache, clock: Callable[[], float], *, budget: float = 0.12
) -> RowCosts:
    """Times passes of the row counts of GRID on the emptied cache; the fastest of each counts.

    `clock`: in seconds, such as time.perf_counter. No pass begins later than `budget` seconds after
    the first, because a stream may wait. Row counts that were then not measured are interpolated,
    or extrapolated in proportion to their rows; later passes correct them. The tokens of a pass
    differ, so that each row chooses experts of its own where there are some. The cache must hold 16
    positions, and is empty afterwards.
    """
    seconds: dict[int, float] = {}
    token_ids = _spread(model.config.vocab_size)
    began = clock()
    # The first pass does not count: it also records the program and touches memory first.
    for n_rows in (None, *_ROUNDS * _BY_WORTH):
        cache.clear()
        start = clock()
        if len(seconds) > 1 and start - began > budget:
            break
        model.decode(token_ids[: n_rows or 1], cache)
        model.ops.wait()
        if n_rows is not None:
            seconds[n_rows] = max(min(clock() - start, seconds.get(n_rows, inf)), 1e-9)
    cache.clear()
    return RowCosts(tuple(_completed(seconds, n_rows) for n_rows in GRID))


def _spread(vocab_size: int) -> list[int]:
    """Ids for a pass of the most rows, all over the vocabulary."""
    return [row * vocab_size // MAX_DECODE_ROWS for row in range(MAX_DECODE_ROWS)]


def _completed(seconds: Mapping[int, float], n_rows: int) -> float:
    """What `n_rows` took, or an estimate from what fewer and more rows took."""
    if n_rows in seconds:
        return seconds[n_rows]
    fewer = max(n for n in seconds if n < n_rows)
    more = min((n for n in seconds if n > n_rows), default=None)
    if more is None:
        return seconds[fewer] * n_rows / fewer
    share = (n_rows - fewer) / (more - fewer)
    return seconds[fewer] * (1.0 - share) + seconds[more] * share


def _place(n_rows: int) -> tuple[int, float]:
    """Where `n_rows` lies in the grid: the index before it, and how far it is towards the next."""
    grid = (*GRID, *_LONG)
    lower = max(bisect_left(grid, n_rows) - 1, 0)
    return lower, (n_rows - grid[lower]) / (grid[lower + 1] - grid[lower])
