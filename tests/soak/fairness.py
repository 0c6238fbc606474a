"""Turns: first come, first served among equals, and a polite client never waits behind a greedy
one.

Read from the tickets in the audit: when each was queued and when it was admitted.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from .goals import Goal, jain, quantile
from .server import Options
from .site import Site, serving
from .wire import ask

N_EQUAL = 16
GREEDY, POLITE = "greedy", ("polite1", "polite2", "polite3", "polite4")
N_GREEDY = 100
OPTIONS_KEYS = Options(
    token_s=0.001, flags={"api-keys": ",".join((GREEDY, *POLITE)), "max-queue": "200"}
)
_THINK = 40  # service times, on average


def measure(scale: float) -> Iterator[Goal]:
    with serving(Options(flags={"max-queue": "64"})) as site:
        yield from asyncio.run(equal_goals(site, max(160, round(10_000 * scale))))
    with serving(OPTIONS_KEYS, key=GREEDY) as site:
        yield from asyncio.run(greedy_goals(site, seconds=max(2.0, 40.0 * scale)))


async def equal_goals(site: Site, n: int) -> list[Goal]:
    """Sixteen clients, each with one request after another."""
    await site.start()
    served: Counter[int] = Counter()
    records: list[dict[str, Any]] = []
    numbers = iter(range(n))

    async def client(who: int) -> None:
        for number in numbers:
            reply = await ask(site.port, "/v1/completions", _body(f"{who} {number}", 5))
            served[who] += reply.end == "done"
            if number % 500 == 499:
                records.extend(await site.audit())

    await asyncio.gather(*map(client, range(N_EQUAL)))
    await site.idle()
    records.extend(await site.audit())
    found, index = inversions(records), jain([served[who] for who in range(N_EQUAL)])
    return [
        Goal("FIFO inversions", f"{found} in {len(records):,} tickets", "0",
             found == 0 and len(records) >= 0.9 * n),
        Goal(f"Jain's index of {N_EQUAL} equal clients", f"{index:.5f}", ">= 0.99", index >= 0.99),
    ]  # fmt: skip


def inversions(records: Sequence[dict[str, Any]]) -> int:
    """How many tickets were admitted before one that had been queued earlier."""
    ran = sorted((r for r in records if r["admitted_at"] is not None), key=_admitted_at)
    return sum(a["queued_at"] > b["queued_at"] for a, b in itertools.pairwise(ran))


async def greedy_goals(site: Site, *, seconds: float) -> list[Goal]:
    """One key with a hundred requests at once, four keys with a request now and then."""
    await site.start()
    chance = random.Random(9)
    end = time.monotonic() + seconds
    numbers = itertools.count()
    records: list[dict[str, Any]] = []

    async def client(key: str, *, think: float) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(chance.expovariate(1 / think) if think else 0)
            await ask(site.port, "/v1/completions", _body(f"{next(numbers)}", 10), key=key)

    async def collect() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(0.5)
            records.extend(await site.audit())

    think = _THINK * 0.012
    await asyncio.gather(
        collect(),
        *(client(GREEDY, think=0) for _ in range(N_GREEDY)),
        *(client(key, think=think) for key in POLITE),
    )
    records.extend(await site.audit())
    waits, service, n_greedy = _polite_waits(records)
    worst = quantile(waits, 0.99)
    return [
        Goal(
            "polite keys' wait beside a greedy one",
            f"p99 {worst:.2f} service times of {1000 * service:.1f} ms without each other's turns, "
            f"median {quantile(waits, 0.5):.2f}, n {len(waits)}; greedy served {n_greedy}",
            "p99 <= 2 service times",
            worst <= 2.0,
        )
    ]


def _polite_waits(records: Sequence[dict[str, Any]]) -> tuple[list[float], float, int]:
    """In service times, less the turns of other polite keys. Returns also a service time and the
    greedy tickets.
    """
    ran = [r for r in records if r["admitted_at"] is not None and r["freed_at"] is not None]
    by_key = Counter(r["key"] for r in ran)
    greedy = by_key.most_common(1)[0][0]
    polite = [r for r in ran if r["key"] != greedy]
    service = quantile([r["freed_at"] - r["admitted_at"] for r in ran], 0.5)
    waits = []
    for record in polite:
        start, end = record["queued_at"], record["admitted_at"]
        others = sum(
            max(0.0, min(end, other["freed_at"]) - max(start, other["admitted_at"]))
            for other in polite
            if other is not record
        )
        waits.append((end - start - others) / service)
    return waits, service, by_key[greedy]


def _admitted_at(record: dict[str, Any]) -> float:
    return float(record["admitted_at"])


def _body(prompt: str, n_tokens: int) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, "max_tokens": n_tokens, "stream": True}
