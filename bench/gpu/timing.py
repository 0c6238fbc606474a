"""How long device work takes. Owns the warm-up, the repeats and the median; knows no model."""

import time
from collections.abc import Callable
from statistics import median

import torch

ROUNDS = 5


def synchronize() -> None:
    """Until the device has done all that it was given; nothing without one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_each(work: Callable[[], object], *, calls: int, rounds: int = ROUNDS) -> float:
    """What one of `calls` calls in a row takes, the device's part included; the median of rounds.

    The clock is the host's, between two synchronisations: so many calls that they take
    milliseconds make these cheap. A round before the first warms up.
    """
    samples = []
    for number in range(rounds + 1):
        synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        synchronize()
        if number:
            samples.append((time.perf_counter() - start) / calls)
    return median(samples)
