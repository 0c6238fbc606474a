"""Clients that never read: they hold up their own answer, and nobody else's.

In turn, 64 clients read a long answer or leave it in a closed window; after that, eight good
clients are timed. The rounds alternate, so that both kinds meet the same state of the machine.
"""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from .goals import Goal, quantile
from .server import Options
from .site import Site, serving
from .wire import Reply, ask, hang_up, request_bytes

N_SLOW = 64
SEND_TIMEOUT_S = 15.0
OPTIONS = Options(flags={"send-timeout": f"{SEND_TIMEOUT_S:g}", "max-queue": "128"})
_N_GOOD = 8
_SETTLE_S = 1.0
_LONG = {"model": "fake", "max_tokens": 200, "stream": True, "logprobs": 5}


def measure(scale: float) -> Iterator[Goal]:
    rounds = max(2, round(8 * scale))
    each = max(3, round(40 * min(1.0, scale)))
    with serving(OPTIONS) as site:
        yield from asyncio.run(goals(site, rounds=rounds, each=each))
        lost = asyncio.run(_dropped(site, N_SLOW))
        yield Goal(
            f"dropped {SEND_TIMEOUT_S:g} s later", f"{lost} of {N_SLOW}", "all", lost >= N_SLOW
        )


async def goals(site: Site, *, rounds: int, each: int, n_slow: int = N_SLOW) -> list[Goal]:
    await site.start()
    await _good(site, each)  # warm
    times: dict[bool, list[float]] = {False: [], True: []}
    free: dict[bool, list[float]] = {False: [], True: []}
    held = []
    n_bad = 0
    for round_ in range(2 * rounds):
        slow = round_ % 2 == 1
        before = (await site.state())["descriptors"]
        began = time.monotonic()
        socks = await _background(site, n_slow, slow=slow)
        await site.idle()
        free[slow].append(time.monotonic() - began)
        await asyncio.sleep(_SETTLE_S)  # unread text is encoded as far as it goes
        if slow:
            held.append((await site.state())["descriptors"] - before)
        replies = await _good(site, each)
        n_bad += sum(reply.end != "done" for reply in replies)
        first = [reply.first_at - reply.sent_at for reply in replies if reply.first_at is not None]
        times[slow].append(quantile(first, 0.99))
        for sock in socks:
            hang_up(sock, "rst")
    middle = quantile(times[True], 0.5)
    lowest, highest = min(times[False]), max(times[False])
    return [
        Goal("answers kept back", f"{min(held)} at least", f">= {n_slow}", min(held) >= n_slow),
        Goal(
            "others' p99 time to first token",
            f"{1000 * middle:.2f} ms beside {n_slow} that never read (rounds {_ms(times[True])}); "
            f"control rounds {_ms(times[False])}",
            f"median of rounds <= {1000 * highest:.2f} ms, the highest of the control "
            f"({1000 * lowest:.2f} to {1000 * highest:.2f})",
            middle <= highest,
        ),
        Goal(
            f"engine free behind {n_slow} answers",
            f"{quantile(free[True], 0.5):.2f} s when nobody reads, "
            f"{quantile(free[False], 0.5):.2f} s when all do",
            "unread <= read, the slowest round, + 0.5 s",
            quantile(free[True], 0.5) <= max(free[False]) + 0.5,
        ),
        Goal("others' answers that failed", str(n_bad), "0", n_bad == 0),
    ]


async def _background(site: Site, n: int, *, slow: bool) -> list[socket.socket]:
    """Long answers, read at once or never."""
    if not slow:
        await asyncio.gather(
            *(ask(site.port, "/v1/completions", _long(i), receive_buffer=4096) for i in range(n))
        )
        return []
    return [await _never_read(site.port, i) for i in range(n)]


def _long(number: int) -> dict[str, Any]:
    return {**_LONG, "prompt": f"long answer {number}", "logprobs": 5, "max_tokens": 400}


async def _never_read(port: int, number: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, b"".join(request_bytes("/v1/completions", _long(number))))
    return sock


async def _good(site: Site, each: int) -> list[Reply]:
    async def client(number: int) -> list[Reply]:
        body = {"model": "fake", "prompt": f"good {number}", "max_tokens": 10, "stream": True}
        return [await ask(site.port, "/v1/completions", body) for _ in range(each)]

    return [
        reply for replies in await asyncio.gather(*map(client, range(_N_GOOD))) for reply in replies
    ]


async def _dropped(site: Site, n: int) -> int:
    """How many of those that never read the server has dropped when their time is over."""
    before = (await site.state())["descriptors"]
    socks = await _background(site, n, slow=True)
    await site.idle()
    held = (await site.state())["descriptors"]
    await asyncio.sleep(SEND_TIMEOUT_S + 1.0)
    left = (await site.state())["descriptors"]
    for sock in socks:
        hang_up(sock, "rst")
    return int(min(n, held - before) - max(0, left - before))


def _ms(seconds: list[float]) -> str:
    return json.dumps([round(1000 * value, 2) for value in seconds])
