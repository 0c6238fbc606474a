"""How long device work takes. Owns the warm-up, the repeats and the median; knows no model."""

import time
from collections.abc import Callable
from statistics import median

import torch

ROUNDS = 5


def synchronize() -> None:
    """Waits until the device has finished; does nothing without one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_each(work: Callable[[], object], *, calls: int, rounds: int = ROUNDS) -> float:
    """Seconds per call in a row of `calls`, including the device; the median of rounds.

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
