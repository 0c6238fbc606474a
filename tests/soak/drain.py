"""SIGTERM in the middle of traffic: what fits is finished, all others get an error, none silence.

Each round is a server process, a random load at a random phase, the signal, and late comers; then
the exit code and its time. The engine's tokens sleep, so rounds run in parallel.
"""

import asyncio
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .goals import Goal, quantile
from .server import Options
from .site import ready_port, spawn
from .wire import Reply, ask

DRAIN_S = 2.0
TOKEN_S = 0.01
OPTIONS = Options(token_s=TOKEN_S, flags={"drain-seconds": f"{DRAIN_S:g}"})
_AT_ONCE = 3
_SEED = 11
_PATIENCE_S = 30.0
_EXIT_LIMIT_S = DRAIN_S + 1.0
_MARGIN_S = 0.5  # around the end of the drain, where either end of a stream is correct
_IN_FLIGHT_S = 0.02  # before the signal: a connection that the server may not have seen yet


class _Sent(NamedTuple):
    n_tokens: int
    reply: Reply


@dataclass(slots=True)
class Tally:
    """The results of all rounds."""

    exits: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    n_fit: int = 0
    n_cut: int = 0
    """Streams that would have fitted, and did not end with [DONE]."""
    n_silent: int = 0
    n_turned_away: int = 0
    examples: list[str] = field(default_factory=list)


def measure(scale: float) -> Iterator[Goal]:
    rounds = max(4, round(200 * scale))
    tally = Tally()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda number: round_of(number, tally, OPTIONS), range(rounds)):
            pass
    yield from goals(tally)


def goals(tally: Tally) -> Iterator[Goal]:
    rounds = sum(tally.codes.values())
    ends = ", ".join(f"{n} {end}" for end, n in sorted(tally.ends.items()))
    cut = f"{tally.n_fit - tally.n_cut} of {tally.n_fit} that fit, over {rounds} rounds ({ends})"
    yield Goal("streams that end with [DONE]", cut, "all that fit", tally.n_cut == 0)
    silent = f"{tally.n_silent}; {tally.n_turned_away} late comers were turned away"
    yield Goal("ended silently", silent, "0", tally.n_silent == 0)
    codes = dict(tally.codes)
    yield Goal("exit codes", str(codes), "0", set(codes) == {0})
    slowest = max(tally.exits)
    yield Goal(
        "from the signal to the exit",
        f"max {slowest:.2f} s, median {quantile(tally.exits, 0.5):.2f} s",
        f"<= {_EXIT_LIMIT_S:g} s",
        slowest <= _EXIT_LIMIT_S,
    )
    for example in tally.examples[:5]:
        yield Goal("example", example, "none", False)


def round_of(
    number: int, tally: Tally, options: Options, *, sign: signal.Signals = signal.SIGTERM
) -> None:
    """One server, from its start to its exit, which `sign` asks for."""
    process = spawn(options)
    try:
        port = ready_port(process)
        term_at, sent = asyncio.run(_traffic(port, process, sign, random.Random(_SEED + number)))
        code = process.wait(_PATIENCE_S)
        # Streams end after the last reply; the process is polled no more often than this.
        tally.exits.append(time.monotonic() - term_at)
        tally.codes[code] += 1
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    _judge(number, sent, term_at, tally)


async def _traffic(
    port: int, process: subprocess.Popen[str], sign: signal.Signals, chance: random.Random
) -> tuple[float, list[_Sent]]:
    tasks: list[tuple[int, asyncio.Task[Reply]]] = []

    def send() -> None:
        n_tokens = chance.choice((5, 30, 100, 300))
        body = _body(f"drain {len(tasks)}", n_tokens, stream=chance.random() < 0.8)
        work = ask(port, "/v1/completions", body, patience=_PATIENCE_S)
        tasks.append((n_tokens, asyncio.create_task(work)))

    for _ in range(chance.randrange(6)):
        send()
        await asyncio.sleep(chance.uniform(0, 0.3))
    await asyncio.sleep(chance.uniform(0, 0.5))
    process.send_signal(sign)
    term_at = time.monotonic()
    for _ in range(2):
        await asyncio.sleep(chance.uniform(0, 0.5))
        send()
    replies = await asyncio.gather(*(task for _, task in tasks))
    return term_at, [_Sent(n, reply) for (n, _), reply in zip(tasks, replies, strict=True)]


def _judge(number: int, sent: list[_Sent], term_at: float, tally: Tally) -> None:
    free_at = 0.0  # when the engine has finished the requests before, at the earliest
    for n_tokens, reply in sent:
        early = 0.0 < reply.sent_at < term_at - _IN_FLIGHT_S
        end = reply.end
        if not early and end in ("unreachable", "silent", "refused"):
            tally.n_turned_away += 1
            continue
        tally.ends[end] += 1
        where = f"round {number}: {n_tokens} tokens, {end} {reply.status} {reply.detail}"
        if end in ("silent", "stuck", "broken", "unreachable"):
            tally.n_silent += 1
            tally.examples.append(where)
        # Each token sleeps a little longer than it should.
        free_at = max(free_at, reply.sent_at) + 1.1 * TOKEN_S * n_tokens + 0.02
        fits = early and free_at < term_at + DRAIN_S - _MARGIN_S
        tally.n_fit += fits
        if fits and end != "done":
            tally.n_cut += 1
            tally.examples.append(f"{where} {reply.error}")


def _body(prompt: str, n_tokens: int, *, stream: bool) -> dict[str, Any]:
    return {"model": "fake", "prompt": prompt, "max_tokens": n_tokens, "stream": stream}
