"""Whether the time that a wrong key takes reveals how much of it is right.

Keys that are wrong at their first character and at their last are looked up in random order. The
two sets of times are compared by Welch's t, which exceeds 4.5 by chance once in 100,000 runs
(dudect's threshold).
"""

import math
import random
import time
from collections.abc import Iterator
from statistics import mean, variance
from typing import Any

from fastapi import FastAPI
from pydantic import SecretStr

from server.http.auth import KeyGate

from .goals import Goal, quantile

_KEY = "k" * 64
_OTHER = "z" * 64
_LIMIT = 4.5
_SHARE = 0.95  # of all times; the machine causes the slowest ones


def measure(scale: float) -> Iterator[Goal]:
    n = max(2_000, round(200_000 * scale))
    gate = KeyGate(FastAPI(), api_keys=[SecretStr(_KEY), SecretStr(_OTHER)])
    scopes = [_scope("X" + _KEY[1:]), _scope(_KEY[:-1] + "X")]
    times: tuple[list[int], list[int]] = ([], [])
    chance = random.Random(1)
    for _ in range(n):
        kind = chance.randrange(2)
        began = time.perf_counter_ns()
        gate.caller(scopes[kind])
        times[kind].append(time.perf_counter_ns() - began)
    bound = quantile([*times[0], *times[1]], _SHARE)
    first, last = ([ns for ns in kind if ns <= bound] for kind in times)
    t = welch(first, last)
    yield Goal(
        "a wrong key's time, wrong at its first character or at its last",
        f"|t| = {abs(t):.2f}, means {mean(first):.0f} and {mean(last):.0f} ns, n {n:,}",
        f"< {_LIMIT}",
        abs(t) < _LIMIT,
    )


def welch(a: list[int], b: list[int]) -> float:
    """The difference of the means, in standard errors."""
    return (mean(a) - mean(b)) / math.sqrt(variance(a) / len(a) + variance(b) / len(b))


def _scope(key: str) -> dict[str, Any]:
    return {"headers": [(b"host", b"a"), (b"authorization", f"Bearer {key}".encode())]}
