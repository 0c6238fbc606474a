"""Memory, descriptors, threads and tasks over many requests: what is taken is given back.

All kinds of requests in turn: streams, whole answers, chats, errors, and clients that hang up.
"""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .goals import Goal, theil_sen
from .server import Options
from .site import Site, serving
from .wire import Leave, ask

OPTIONS = Options(ring=64)
WARM_UP = 500
_CLIENTS = 8
_PER_SAMPLE = 100


def measure(scale: float) -> Iterator[Goal]:
    n = max(400, round(10_000 * scale))
    with serving(OPTIONS) as site:
        asyncio.run(use(site, WARM_UP))
        yield from asyncio.run(goals(site, n))
        yield asyncio.run(_control(site, n // 4))


async def _control(site: Site, n: int) -> Goal:
    """A check of the instrument: a kibibyte kept of each request must show."""
    await site.plant("leak memory")
    goal = (await goals(site, n))[0]
    await site.plant()
    return goal._replace(name="a planted leak of 1 KiB per request", limit="seen", met=not goal.met)


async def goals(site: Site, n: int, *, per_sample: int = _PER_SAMPLE) -> list[Goal]:
    await site.start()
    before = await _settled(site)
    points = [(0.0, float(resident(site)))]
    for done in range(per_sample, n + 1, per_sample):
        await use(site, per_sample, seed=done)
        points.append((float(done), float(resident(site))))
    after = await _settled(site)
    slope = theil_sen(points)
    base = points[0][1]
    drift = slope * n / base
    figure = (
        f"{100 * drift:+.3f} % of {base / 2**20:.1f} MiB ({slope:+.1f} bytes per request, "
        f"Theil-Sen over {len(points)} samples; last {(points[-1][1] - base) / 2**10:+.0f} KiB)"
    )
    counts = ("descriptors", "threads", "tasks")
    return [
        Goal(f"resident memory over {n:,} requests", figure, "< 1 %", abs(drift) < 0.01),
        *(
            Goal(
                f"growth of {name}",
                f"{after[name] - before[name]:+d}",
                "0",
                after[name] <= before[name],
            )
            for name in counts
        ),
    ]


async def use(site: Site, n: int, *, seed: int = 0) -> None:
    """`n` requests of all kinds."""
    chance = random.Random(seed)
    numbers = iter(range(n))

    async def client() -> None:
        for number in numbers:
            path, body = _request(number % 10, f"{seed:07d} {number}")
            aborted = number % 10 in (6, 7)
            how = ("fin", "rst")[number % 2]
            leave = Leave(how, after=chance.uniform(0.001, 0.02)) if aborted else None
            await ask(site.port, path, body, leave=leave)

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))


def _request(kind: int, prompt: str) -> tuple[str, dict[str, Any]]:
    fields: dict[str, Any] = {"model": "fake", "max_tokens": 40, "stream": kind % 2 == 0}
    if kind == 3:
        messages = [{"role": "user", "content": prompt}]
        return "/v1/chat/completions", {**fields, "messages": messages}
    if kind == 5:
        return "/v1/completions", {**fields, "prompt": prompt, "temperature": -1}
    if kind == 8:
        fields["logprobs"] = 5
    return "/v1/completions", {**fields, "prompt": prompt}


async def _settled(site: Site) -> dict[str, Any]:
    """The state without any client."""
    await site.idle()
    await asyncio.sleep(0.3)
    return await site.state()


def resident(site: Site) -> int:
    """Resident bytes of the server."""
    for line in Path(f"/proc/{site.process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("no Rss in smaps_rollup")
