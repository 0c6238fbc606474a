"""The time from a client's hang-up to a free engine: in the queue, in the prefill, in the decode.

The client notes when it closes its socket, and the lease when the ticket has left, by the same
clock. The ticket, not the client's plan, says which of the three the request was in.
"""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from .goals import Goal, at_most, histogram
from .server import Options
from .site import Site, serving
from .wire import Leave, ask

TOKEN_S = 0.005
CHUNK_S = 0.005
CHUNK = 64
LIMITS = {"queue": 0.020, "prefill": CHUNK_S + 0.010, "decode": TOKEN_S + 0.010}
OPTIONS = Options(token_s=TOKEN_S, chunk=CHUNK, chunk_s=CHUNK_S, max_seq_len=16384)
_HOW = ("fin", "rst", "late")
_SEED = 7

# Characters of the prompt, and when the client leaves, in seconds after its connect.
_PREFILLED = 12 * CHUNK, (0.004, 11 * CHUNK_S)
_DECODED = 16, (CHUNK_S + 0.006, CHUNK_S + 0.040)
_QUEUED = 16, (0.004, 0.030)


def measure(scale: float) -> Iterator[Goal]:
    n = max(30, round(1000 * scale))
    with serving(OPTIONS) as site:
        times, is_free, state = asyncio.run(_measure(site, n))
    yield from goals(times, n=n)
    yield Goal("engine comes free behind all of them", str(is_free), "True", is_free)
    inside = state["native_max"]
    yield Goal("callers inside the model", str(inside), "1", inside == 1)


def goals(times: dict[str, list[float]], *, n: int) -> Iterator[Goal]:
    for phase, limit in LIMITS.items():
        yield at_most(f"abort to free, {phase}", times[phase], limit)
        enough = len(times[phase]) >= 0.6 * n
        yield Goal(f"histogram, {phase}", histogram(times[phase]), f"n >= {0.6 * n:g}", enough)


async def _measure(site: Site, n: int) -> tuple[dict[str, list[float]], bool, dict[str, Any]]:
    await site.start()
    times: dict[str, list[float]] = {phase: [] for phase in LIMITS}
    for kind in (_PREFILLED, _DECODED):
        await storm(site, n, *kind, times)
    blocker = asyncio.create_task(_hold(site))
    await storm(site, n, *_QUEUED, times)
    blocker.cancel()
    await asyncio.gather(blocker, return_exceptions=True)
    return times, await site.idle(), await site.state()


async def storm(
    site: Site,
    n: int,
    n_prompt: int,
    leaves: tuple[float, float],
    times: dict[str, list[float]],
    *,
    settle: float = 0.2,
) -> None:
    """`n` clients leave one after another at a random moment; adds seconds to `times` by phase.

    Tickets that are not free `settle` seconds after the last client are not counted.
    """
    chance = random.Random(_SEED)
    left_at: dict[int, float] = {}
    for number in range(n):
        prompt = f"{number:07d} ".ljust(n_prompt, "x")
        leave = Leave(_HOW[number % 3], after=chance.uniform(*leaves))
        reply = await ask(site.port, "/v1/completions", _body(prompt, 400), leave=leave)
        left_at[number] = reply.over_at
        if number % 200 == 199:
            await _collect(site, left_at, times)
    await asyncio.sleep(settle)
    await _collect(site, left_at, times)


async def _collect(site: Site, left_at: dict[int, float], times: dict[str, list[float]]) -> None:
    for record in await site.audit():
        start = bytes(record["prompt"][:7])
        left = left_at.get(int(start)) if start.isdigit() else None
        if left is not None and record["freed_at"] > left:
            times[_phase(record, left)].append(record["freed_at"] - left)


def _phase(record: dict[str, Any], left: float) -> str:
    """Where the request was when its client left."""
    if record["admitted_at"] is None or left < record["admitted_at"]:
        return "queue"
    if record["prefilled_at"] is None or left < record["prefilled_at"]:
        return "prefill"
    return "decode"


async def _hold(site: Site) -> None:
    """Keep the engine busy."""
    while True:
        await ask(site.port, "/v1/completions", _body("the blocker", 8000), patience=120)


def _body(prompt: str, n_tokens: int) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, "max_tokens": n_tokens, "stream": True}
