"""The stages of the sampler, one pure function each, in float64.

Owns their formulas. A stage sees n candidates in descending order: either their probabilities p
(n,), which sum to 1, or their nats (n,), the logarithms of p relative to the first, so 0 and below.
A filter returns which candidates it keeps, bool (n,), at least one; the others return new nats.
"""

import math

import numpy as np
import numpy.typing as npt

from ..request import LOWEST_TEMPERATURE

Wide = npt.NDArray[np.float64]
Kept = npt.NDArray[np.bool_]


def probabilities(nats: Wide) -> Wide:
    """p of candidates; the first has 0 nats."""
    masses = np.exp(nats)
    p: Wide = masses / masses.sum()
    return p


def smoothing(nats: Wide, factor: float) -> Wide:
    """Quadratic sampling: the square of the distance to the best (kalomaze, text-generation-webui
    pull request 5403; here relative to the maximum, as in ExLlamaV2).
    """
    with np.errstate(over="ignore"):  # -inf is what it should be
        smoothed: Wide = -factor * nats * nats
    return smoothed


def temperature(nats: Wide, value: float) -> Wide:
    """softmax(l / T), which is p^(1/T) renormalised (Ackley, Hinton, Sejnowski 1985)."""
    with np.errstate(over="ignore"):
        scaled: Wide = nats / max(value, LOWEST_TEMPERATURE)
    return scaled


def dynamic_temperature(nats: Wide, low: float, high: float, exponent: float) -> Wide:
    """The temperature grows from low to high with the entropy, relative to the largest that n
    candidates can have (kalomaze; the idea is in Zhang et al., "EDT", arXiv 2403.14541).
    """
    n = len(nats)
    if n == 1:
        return nats
    share = min(entropy(probabilities(nats)) / math.log(n), 1.0)
    return temperature(nats, low + (high - low) * share**exponent)


def top_n_sigma(nats: Wide, n: float) -> Kept:
    """Within n standard deviations of the largest logit (Tang et al., arXiv 2411.07641)."""
    with np.errstate(over="ignore"):
        sigma = nats[nats > -np.inf].std()
    kept: Kept = nats >= -n * sigma
    return kept


def top_k(p: Wide, k: int) -> Kept:
    """The k most likely (Fan et al., arXiv 1805.04833)."""
    return _first(len(p), k)


def top_p(p: Wide, mass: float) -> Kept:
    """The fewest most likely whose sum reaches `mass` (Holtzman et al., arXiv 1904.09751)."""
    return _first(len(p), _n_to_reach(p, mass))


def top_a(p: Wide, a: float) -> Kept:
    """At least a times the square of the largest p (BlinkDL, RWKV-LM: "top-a")."""
    kept: Kept = p >= a * p[0] * p[0]
    return kept


def min_p(p: Wide, share: float) -> Kept:
    """At least `share` of the largest p (Nguyen et al., arXiv 2407.01082)."""
    kept: Kept = p >= share * p[0]
    return kept


def tail_free(p: Wide, z: float) -> Kept:
    """Cuts where the curve of sorted probabilities has spent the share z of its bending (Bricken,
    "Tail Free Sampling", 2019).

    Bending at i: abs(p[i] - 2 p[i + 1] + p[i + 2]). The last candidate kept is the one at which the
    sum exceeds z. All stay if there are fewer than three, or if the curve does not bend.
    """
    if len(p) < 3:
        return _first(len(p), len(p))
    bending = np.abs(p[:-2] - 2 * p[1:-1] + p[2:]).cumsum()
    exceeding = np.flatnonzero(bending > z * bending[-1])
    return _first(len(p), int(exceeding[0]) + 1 if exceeding.size else len(p))


def typical(p: Wide, mass: float) -> Kept:
    """The fewest whose surprise is nearest to the entropy and whose sum reaches `mass` (Meister et
    al., arXiv 2202.00666). Ties go to the more likely.
    """
    order = np.abs(-np.log(p) - entropy(p)).argsort(kind="stable")
    kept = np.zeros(len(p), dtype=bool)
    kept[order[: _n_to_reach(p[order], mass)]] = True
    return kept


def mirostat(p: Wide, mu: float) -> Kept:
    """At most mu bits of surprise; the most likely always stays (Basu et al., arXiv 2007.14966,
    version 2).
    """
    kept: Kept = -np.log2(p) <= mu
    kept[0] = True
    return kept


def xtc(p: Wide, probability: float, threshold: float, protected: Kept, u: float) -> Kept:
    """Exclude top choices: with `probability`, remove the candidates of at least `threshold` but
    the least likely of them (p-e-w, text-generation-webui pull request 6335).

    `protected` (n,) are not counted and always stay. `u` is uniform in [0, 1).
    """
    kept = np.ones(len(p), dtype=bool)
    above = np.flatnonzero((p >= threshold) & ~protected)
    if u < probability:
        kept[above[:-1]] = False
    return kept


def skew(cumulative: Wide, value: float) -> Wide:
    """The cumulative distribution whose draw at u equals the given one's at u^exp(-value)
    (ExLlamaV2's "skew").
    """
    powered: Wide = cumulative ** math.exp(value)
    return powered


def entropy(p: Wide) -> float:
    """In nats."""
    return float(-(p * np.log(p)).sum())


def _first(n: int, count: int) -> Kept:
    kept: Kept = np.arange(n) < count
    return kept


def _n_to_reach(p: Wide, mass: float) -> int:
    """How many of the first are needed to reach the share `mass` of the sum: at least 1."""
    cumulative = p.cumsum()
    return int(np.searchsorted(cumulative, mass * cumulative[-1])) + 1
