"""Grammars that explode, from clients that leave: what they cost, and whom.

Read from /proc: the processor time of the server with all its children, and the children's memory.
Linux only.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .goals import Goal, quantile
from .server import Options
from .site import Site, serving
from .wire import SENT, Leave, ask, request_bytes

N_REQUESTS = 200
IDLE_LIMIT_S = 4.0
_MEMORY_LIMIT = 600 * 2**20
_SLOWDOWN_LIMIT = 3.0
_ROUNDS = 10
_N_SHORT = 6  # in each
_TRIED_S = 5.0  # long enough that one trial runs to its end
_PATIENCE_S = 120.0
_WINDOW_S = 0.2
_IDLE_SHARE = 0.1  # of one core
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# All of them may wait, so that none is spared by a refusal.
OPTIONS = Options(engine="bundled", flags={"max-queue": str(2 * N_REQUESTS)})


def measure(scale: float) -> Iterator[Goal]:
    n = max(20, round(N_REQUESTS * scale))
    with serving(OPTIONS) as site:
        model = asyncio.run(site.get("/v1/models"))["data"][0]["id"]
        yield from asyncio.run(goals(site, model, n))
        # Each of these is also compiled here, after its trial, which cannot be interrupted.
        passing = await_idle(site, [_regex(i, 9_000) for i in range(n)], model, settle=2.0)
        yield _idle_goal("grammars that pass, left after 2 s", n, asyncio.run(passing))


async def goals(site: Site, model: str, n: int) -> list[Goal]:
    grammars = [_regex(i, 20_000) for i in range(3 * n)]
    at_once = await await_idle(site, grammars[:n], model, settle=0.0)
    memory = Memory(site)
    watching = asyncio.create_task(memory.watch())
    later = await await_idle(site, grammars[n : 2 * n], model, settle=_TRIED_S)
    watching.cancel()
    alone, beside = await _short_ones(site, model, grammars[2 * n :])
    ratio = quantile(beside, 0.5) / quantile(alone, 0.5)
    return [
        _idle_goal("sent and closed", n, at_once),
        _idle_goal(f"left after {_TRIED_S:g} s", n, later),
        Goal(
            "memory of the children",
            f"{memory.peak / 2**20:.0f} MiB at most, in {memory.n_most} processes",
            f"< {_MEMORY_LIMIT // 2**20} MiB",
            0 < memory.peak < _MEMORY_LIMIT,
        ),
        Goal(
            "a short completion beside those that wait",
            f"{1000 * quantile(beside, 0.5):.1f} ms, max {1000 * quantile(beside, 1.0):.1f}; alone "
            f"{1000 * quantile(alone, 0.5):.1f}, max {1000 * quantile(alone, 1.0):.1f}: "
            f"{ratio:.2f} times, medians of {len(beside)} each",
            f"<= {_SLOWDOWN_LIMIT:g} times",
            ratio <= _SLOWDOWN_LIMIT,
        ),
    ]


async def _short_ones(
    site: Site, model: str, grammars: list[str]
) -> tuple[list[float], list[float]]:
    """Alone and with the grammars in alternation, since the machine may have other work."""
    await _short(site, model, 3)  # warm
    alone, beside = [], []
    for i in range(_ROUNDS):
        alone += await _short(site, model, _N_SHORT)
        clients = await _waiting(site, grammars[i::_ROUNDS], model)
        beside += await _short(site, model, _N_SHORT)
        await _idle_after(site, await _hang_up(clients))
    return alone, beside


async def await_idle(site: Site, grammars: list[str], model: str, *, settle: float) -> float:
    """Seconds from the last hang-up to idle cores; each client leaves `settle` seconds after all
    have sent.
    """
    if settle:
        clients = await _waiting(site, grammars, model)
        await asyncio.sleep(settle)
        return await _idle_after(site, await _hang_up(clients))
    path, leave = "/v1/completions", Leave("fin", step=SENT)
    requests = [ask(site.port, path, _body(model, grammar), leave=leave) for grammar in grammars]
    replies = await asyncio.gather(*requests)
    return await _idle_after(site, max(reply.over_at for reply in replies))


def cpu_seconds(pid: int) -> float:
    """The children of a process, living and ended."""
    used = 0
    for one in (pid, *children(pid)):
        with suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            used += sum(map(int, fields[11:15]))
    return used / _TICKS_PER_S


def _wants_processor(pid: int) -> bool:
    """Whether a thread of a process or its children runs, or would if it got a processor: on a
    loaded machine, work at low priority may use hardly any time.
    """
    for one in (pid, *children(pid)):
        for path in Path(f"/proc/{one}/task").glob("*/stat"):
            with suppress(OSError):
                if path.read_text().rpartition(")")[2].split()[0] == "R":
                    return True
    return False


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


class Memory:
    """The resident memory of a server's children, all together."""

    def __init__(self, site: Site) -> None:
        self._pid = site.process.pid
        self.peak = 0
        self.n_most = 0

    async def watch(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while True:
            resident, pids = 0, children(self._pid)
            for pid in pids:
                with suppress(OSError):
                    resident += page * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            self.peak = max(self.peak, resident)
            self.n_most = max(self.n_most, len(pids))
            await asyncio.sleep(0.01)


async def _waiting(site: Site, grammars: list[str], model: str) -> list[asyncio.StreamWriter]:
    """Clients that have sent their request, and read nothing."""
    writers = []
    for grammar in grammars:
        head, content = request_bytes("/v1/completions", _body(model, grammar), key=site.key)
        _, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(head + content)
        await writer.drain()
        writers.append(writer)
    return writers


async def _hang_up(clients: list[asyncio.StreamWriter]) -> float:
    for client in clients:
        client.close()
    await asyncio.gather(*(client.wait_closed() for client in clients), return_exceptions=True)
    return time.monotonic()


async def _idle_after(site: Site, left_at: float) -> float:
    """Seconds from `left_at` to the start of the first two windows with hardly any work."""
    n_idle, began, before = 0, left_at, cpu_seconds(site.process.pid)
    while time.monotonic() < left_at + _PATIENCE_S:
        started = time.monotonic()
        await asyncio.sleep(_WINDOW_S)
        used = cpu_seconds(site.process.pid)
        if used - before <= _IDLE_SHARE * _WINDOW_S and not _wants_processor(site.process.pid):
            n_idle += 1
            began = started if n_idle == 1 else began
            if n_idle == 2:
                return began - left_at
        else:
            n_idle = 0
        before = used
    return _PATIENCE_S


async def _short(site: Site, model: str, n: int) -> list[float]:
    """How long each of `n` short completions takes, one after another."""
    times = []
    for number in range(n):
        body = {
            "model": model,
            "prompt": f"Number {number} of",
            "max_tokens": 16,
            "ignore_eos": True,
        }
        reply = await ask(site.port, "/v1/completions", body)
        if reply.end != "done":
            raise RuntimeError(f"a short completion: {reply.end} {reply.status} {reply.detail}")
        times.append(reply.over_at - reply.sent_at)
        await asyncio.sleep(0.05)
    return times


def _idle_goal(name: str, n: int, seconds: float) -> Goal:
    return Goal(
        f"cores idle behind {n} requests, {name}",
        f"{seconds:.1f} s after the last hang-up",
        f"<= {IDLE_LIMIT_S:g} s",
        seconds <= IDLE_LIMIT_S,
    )


def _regex(number: int, n: int) -> str:
    """A different one for each number; its cost grows with the square of `n`."""
    return "a?" * n + f"c{number}"


def _body(model: str, grammar: str) -> dict[str, Any]:
    return {"model": model, "prompt": "x", "max_tokens": 8, "guided_regex": grammar}
