"""Where the time of a token goes between kernels: the stamps that the driver takes at the begin and
the end of each kernel of a graph, while launches overlap.

Owns how they are counted. A kernel that begins early waits for the one before it, so its duration
says little: its share is the time from the last end before it to its own end, and all shares add up
to the token.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import torch

from engine.benchmark.speed import prompt_ids

from .own import Bench
from .place import IS_REHEARSAL

_PASSES = 20


class Stamp(NamedTuple):
    """A kernel's name, and when it ran, in microseconds."""

    name: str
    begin: float
    end: float


class Share(NamedTuple):
    """All kernels of one op."""

    name: str
    n: int
    us: float  # median share
    early_us: float  # median time that it begins before the last end before it; < 0: idle


def measure_boundaries(bench: Bench, put: Callable[[dict[str, float]], None]) -> None:
    """Prints nothing but figures, per op; none where no GPU records stamps."""
    bench.fill()
    length = bench.cache.length
    ops = [op.name for op in bench.model.profile(_token(bench), bench.cache)]
    bench.cache.rollback(length)
    for share in shares(stamps(bench), ops):
        put({f"{share.name} n": share.n, f"{share.name} us": share.us,
             f"{share.name} early us": share.early_us})  # fmt: skip


def stamps(bench: Bench) -> list[Stamp]:
    """The kernels of some passes in a row, each a graph that was captured before; none without a
    driver.
    """
    if IS_REHEARSAL:
        return []
    length, token_ids = bench.cache.length, _token(bench)

    def run() -> None:
        bench.model.decode(token_ids, bench.cache)
        bench.cache.rollback(length)

    run()
    bench.ops.wait()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(_PASSES):
            run()
        bench.ops.wait()
    return [
        Stamp(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type.name == "CUDA" and not event.name.startswith("Mem")
    ]


def shares(stamps: Sequence[Stamp], ops: Sequence[str]) -> Iterator[Share]:
    """By op, in the order in which they first appear. The first kernel has none before it.

    One kernel serves several ops, so its place in the pass says which one it is. Where ops have
    more than one kernel, the names are those of the kernels.
    """
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    ordered = sorted(stamps, key=lambda stamp: (stamp.end, stamp.begin))
    are_alike = len(ordered) % len(ops) == 0
    for place, (before, stamp) in enumerate(pairwise(ordered), start=1):
        name = ops[place % len(ops)] if are_alike else _kernel(stamp.name)
        groups[name].append((stamp.end - before.end, before.end - stamp.begin))
    for name, times in groups.items():
        yield Share(
            name,
            len(times),
            median(share for share, _ in times),
            median(early for _, early in times),
        )


def _kernel(name: str) -> str:
    """Without what it returns and its arguments."""
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    return bare.split("(")[0][:80]


def _token(bench: Bench) -> list[int]:
    return list(prompt_ids(bench.config.vocab_size, 1, seed=1))
