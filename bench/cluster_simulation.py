"""Replicas, clients and a door in simulated time: how throughput grows with the replicas.

Owns the queues; the choice is that of `server.cluster.choice`, with what a router of this door
knows: what it sent itself, and what replicas published some time ago.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from itertools import count

from server.cluster.choice import Candidate, Standing, ranked
from server.cluster.routed import Prompt

_SIZES = (1, 2, 4, 8, 16, 32, 64)
_CLIENTS_EACH = 4
_SECONDS = 300.0
_MEAN_S = 0.4


class _Events:
    """What happens, in the order of its time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._order), act))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, act = heapq.heappop(self._heap)
            act()


def simulate(*, door_s: float, stats_s: float) -> None:
    """Prints how near to linear each size is. `door_s`: of the door's one thread, per request;
    `stats_s`: between two publications.
    """
    alone = 0.0
    for n in _SIZES:
        rate = _rate(n, door_s=door_s, stats_s=stats_s)
        alone = alone or rate
        print(f"simulate, {n} replicas: {rate:.1f} requests/s, {rate / alone / n:.3f} linear")


def _rate(n: int, *, door_s: float, stats_s: float) -> float:
    events, dice = _Events(), random.Random(n)
    queues = [deque[Callable[[], None]]() for _ in range(n)]
    busy, n_sent, last = [False] * n, [0] * n, [0] * n
    published = [Standing(request_s=_MEAN_S, byte_s=1e-5)] * n
    door_free_at, n_done, n_chosen = 0.0, 0, 0
    prompt = Prompt((), 200)

    def publish() -> None:
        for i in range(n):
            published[i] = Standing(len(queues[i]) + busy[i], 1e-5, _MEAN_S)
        events.after(stats_s, publish)

    def ask() -> None:
        nonlocal door_free_at
        door_free_at = max(door_free_at, events.now) + door_s
        events.after(door_free_at - events.now, choose)

    def choose() -> None:
        nonlocal n_chosen
        candidates = [Candidate(published[i], n_sent[i], last=last[i]) for i in range(n)]
        best = ranked(candidates, prompt)[0]
        n_chosen += 1
        last[best], n_sent[best] = n_chosen, n_sent[best] + 1
        queues[best].append(lambda: events.after(dice.expovariate(1 / _MEAN_S), lambda: end(best)))
        go_on(best)

    def go_on(i: int) -> None:
        if queues[i] and not busy[i]:
            busy[i] = True
            queues[i].popleft()()

    def end(i: int) -> None:
        nonlocal n_done
        busy[i], n_sent[i], n_done = False, n_sent[i] - 1, n_done + 1
        go_on(i)
        ask()

    publish()
    for _ in range(_CLIENTS_EACH * n):
        ask()
    events.run(_SECONDS)
    return n_done / _SECONDS
