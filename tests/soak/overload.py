"""Ten times as many requests as the engine can serve, each with a deadline.

The engine must go on serving at its full rate. A request that cannot be served must be refused at
once and learn when to come back, and no request that has waited too long may still run.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .goals import Goal, at_most
from .server import Options
from .site import Site, serving
from .wire import Reply, ask

OPTIONS = Options(token_s=0.005, flags={"queue-timeout": "2", "max-queue": "64"})
_DEADLINE_S = 3.0
_REJECT_LIMIT_S = 0.050
_FACTOR = 10


def measure(scale: float) -> Iterator[Goal]:
    with serving(OPTIONS) as site:
        yield from asyncio.run(goals(site, seconds=max(3.0, 30.0 * scale)))


async def goals(
    site: Site, *, seconds: float, patience: float = 10.0, n_tokens: int = 10
) -> list[Goal]:
    await site.start()
    await _rate(site, seconds / 10, n_tokens)  # warm
    before = await _rate(site, seconds / 6, n_tokens)
    replies = await _storm(site, _FACTOR * before, seconds, patience, n_tokens)
    await site.idle()
    records = await site.audit()
    capacity = (before + await _rate(site, seconds / 6, n_tokens)) / 2
    good = sum(reply.end == "done" and _lasted(reply) <= _DEADLINE_S for reply in replies)
    # The first requests find an empty queue, the last ones are served after the storm.
    busy = max((reply.over_at for reply in replies if reply.end == "done"), default=0.0) - min(
        reply.sent_at for reply in replies
    )
    goodput = good / busy
    rejects = [reply for reply in replies if reply.end == "refused"]
    full = [_lasted(reply) for reply in rejects if reply.status == 429]
    mute = sum("retry-after-ms" not in reply.headers for reply in rejects)
    others = [reply for reply in replies if reply.end not in ("done", "refused", "error")]
    n = len(replies)
    return [
        Goal(
            f"goodput at {_FACTOR} times the load",
            f"{goodput:.2f}/s of {capacity:.2f}/s: {100 * goodput / capacity:.1f} %; {n:,} offered "
            f"in {seconds:g} s, {good} served in time, {len(full):,} found the queue full, "
            f"{len(rejects) - len(full)} waited too long",
            ">= 95 % of capacity",
            goodput >= 0.95 * capacity,
        ),
        at_most("time to be refused at a full queue", full, _REJECT_LIMIT_S),
        Goal("refused without retry-after-ms", str(mute), "0", mute == 0 and bool(rejects)),
        Goal("unanswered", f"{len(others)} in {n:,} {_ends(others)}", "0", not others),
        ran_behind(records),
    ]


def ran_behind(records: Sequence[dict[str, Any]]) -> Goal:
    """The tickets whose client was told that they waited too long."""
    expired = [record for record in records if record["expired"]]
    ran = sum(record["admitted_at"] is not None for record in expired)
    return Goal("ran behind their deadline", f"{ran} of {len(expired)} expired", "0", ran == 0)


async def _rate(site: Site, seconds: float, n_tokens: int) -> float:
    """Requests per second when two clients take turns."""
    end = time.monotonic() + seconds
    n = 0
    started = time.monotonic()

    async def client(who: int) -> None:
        nonlocal n
        while time.monotonic() < end:
            await ask(site.port, "/v1/completions", _body(who, n_tokens), key=site.key)
            n += 1

    await asyncio.gather(client(0), client(1))
    return n / (time.monotonic() - started)


async def _storm(
    site: Site, rate: float, seconds: float, patience: float, n_tokens: int
) -> list[Reply]:
    """An open loop: requests arrive no matter how the others fare."""
    chance = random.Random(4)
    tasks: list[asyncio.Task[Reply]] = []
    end = time.monotonic() + seconds
    due = time.monotonic()
    while due < end:
        body = _body(len(tasks), n_tokens)
        work = ask(site.port, "/v1/completions", body, patience=patience, key=site.key)
        tasks.append(asyncio.create_task(work))
        due += chance.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return await asyncio.gather(*tasks)


def _lasted(reply: Reply) -> float:
    return reply.over_at - reply.sent_at


def _ends(replies: Sequence[Reply]) -> str:
    return " ".join(sorted({f"{reply.end} {reply.detail}" for reply in replies}))[:200]


def _body(number: int, n_tokens: int) -> dict[str, Any]:
    return {"model": "fake", "prompt": f"load {number}", "max_tokens": n_tokens, "stream": True}
