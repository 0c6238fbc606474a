"""What a topic reports: goals, each with its figure and whether it is met; and the statistics.

Knows no topic and no server.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Goal(NamedTuple):
    """One line of the table."""

    name: str
    figure: str
    limit: str
    met: bool


def none_of(name: str, n: int, trials: int) -> Goal:
    """Met if `name` was never seen. Zero in N trials is reported with its 95 % bound."""
    bound = f", < {3 / trials:.1e} each (95 %)" if trials and not n else ""
    return Goal(name, f"{n} in {trials:,}{bound}", "0", n == 0 and trials > 0)


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that is not exceeded by a share `q` of them; NaN without any."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def at_most(name: str, values: Sequence[float], limit_s: float, *, q: float = 0.99) -> Goal:
    """Met when the quantile `q` of durations in seconds is within the limit."""
    value = quantile(values, q)
    figure = (
        f"p{100 * q:g} {1000 * value:.2f} ms, median {1000 * quantile(values, 0.5):.2f}, "
        f"max {1000 * quantile(values, 1.0):.2f}, n {len(values):,}"
    )
    return Goal(name, figure, f"p{100 * q:g} <= {1000 * limit_s:g} ms", value <= limit_s)


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 when all shares are equal, 1/n when one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else math.nan


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope over all pairs of points, which a few outliers cannot move."""
    slopes = [
        (y2 - y1) / (x2 - x1)
        for i, (x1, y1) in enumerate(points)
        for x2, y2 in points[i + 1 :]
        if x2 != x1
    ]
    return quantile(slopes, 0.5)


def histogram(values: Sequence[float]) -> str:
    """Counts in buckets that double from 0.5 ms: `<0.5:12 <1:30 …`; milliseconds."""
    counts: dict[float, int] = {}
    for value in values:
        edge = 0.5
        while 1000 * value >= edge:
            edge *= 2
        counts[edge] = counts.get(edge, 0) + 1
    return " ".join(f"<{edge:g}:{counts[edge]}" for edge in sorted(counts))
