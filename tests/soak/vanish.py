"""Peers that vanish: their packets stop, and no FIN or RST ever comes.

Clients in a network namespace send requests; then all their packets are dropped. One client's
answer is being decoded, the other waits in the queue. Needs root, and `ip` of iproute2.

`python -m tests.soak.vanish ADDRESS PORT` runs inside the namespace.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .goals import Goal
from .server import Options
from .site import Site, serving
from .wire import ask, request_bytes

LIMIT_S = 25.0
_KEY = "vanish"
# Longer than the limit: 8,000 tokens of 10 ms.
OPTIONS = Options(token_s=0.01, flags={"host": "0.0.0.0", "api-keys": _KEY})
_NAME = f"soliton{os.getpid()}"  # of the namespace, and of the interface that leads there
_OUTSIDE, _INSIDE = "10.213.77.1", "10.213.77.2"
_N_CLIENTS = 2
_PATIENCE_S = 70.0
_ROOT = Path(__file__).parent.parent.parent


def measure(scale: float) -> Iterator[Goal]:
    """The same at every scale."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield Goal("peers that vanish", "not measured: needs root, and ip of iproute2", "-", False)
        return
    with serving(OPTIONS, key=_KEY) as site, _namespace():
        yield from asyncio.run(goals(site))


async def goals(site: Site) -> list[Goal]:
    await site.start()
    client = await asyncio.create_subprocess_exec(
        "ip", "netns", "exec", _NAME, sys.executable, "-m", __spec__.name, _OUTSIDE, str(site.port),
        cwd=_ROOT, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert client.stdout
        await client.stdout.readline()  # the first has its first token
        while (await site.state())["n_waiting"] < _N_CLIENTS - 1:
            await asyncio.sleep(0.01)
        _ip("-n", _NAME, "route", "add", "blackhole", f"{_OUTSIDE}/32")
        vanished_at = time.monotonic()
        body = {"model": "fake", "prompt": "next", "max_tokens": 5, "stream": True}
        after = await ask(site.port, "/v1/completions", body, key=site.key, patience=_PATIENCE_S)
        await site.idle(seconds=_PATIENCE_S)
        records = [record for record in await site.audit() if record["cancelled_at"] is not None]
    finally:
        with suppress(ProcessLookupError):  # its connections may have ended it
            client.kill()
        await client.wait()
    decoded = [r["freed_at"] - vanished_at for r in records if r["admitted_at"] is not None]
    queued = [r["freed_at"] - vanished_at for r in records if r["admitted_at"] is None]
    waited = after.over_at - vanished_at
    return [
        _freed("a peer that vanishes while its answer is decoded", decoded),
        _freed("a peer that vanishes in the queue", queued),
        Goal(
            "whoever waits behind both",
            f"{after.end} after {waited:.1f} s",
            f"done within {LIMIT_S:g} s",
            after.end == "done" and waited <= LIMIT_S,
        ),
    ]


def _freed(name: str, times: Sequence[float]) -> Goal:
    figure = f"freed after {times[0]:.1f} s" if times else "never freed"
    return Goal(name, figure, f"<= {LIMIT_S:g} s", len(times) == 1 and times[0] <= LIMIT_S)


@contextmanager
def _namespace() -> Iterator[None]:
    """A network namespace with an address, at the end of a pair of virtual interfaces."""
    _ip("netns", "add", _NAME)
    try:
        _ip("link", "add", _NAME, "type", "veth", "peer", "name", "in", "netns", _NAME)
        _ip("addr", "add", f"{_OUTSIDE}/24", "dev", _NAME)
        _ip("link", "set", _NAME, "up")
        _ip("-n", _NAME, "addr", "add", f"{_INSIDE}/24", "dev", "in")
        _ip("-n", _NAME, "link", "set", "in", "up")
        yield
    finally:
        _ip("link", "del", _NAME)
        _ip("netns", "del", _NAME)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _vanishing(address: str, port: int) -> None:
    """Sends requests one after the other, and goes silent once the first one is answered."""
    socks: list[socket.socket] = []
    for number in range(_N_CLIENTS):
        body = {"model": "fake", "prompt": f"{number}", "max_tokens": 8000, "stream": True}
        head, content = request_bytes("/v1/completions", body, key=_KEY)
        sock = socket.create_connection((address, port))
        sock.sendall(head + content)
        if not socks:
            sock.recv(1)
        socks.append(sock)
    print("begun", flush=True)
    with suppress(OSError):
        while socks[0].recv(1 << 16):
            time.sleep(0.01)


if __name__ == "__main__":
    _vanishing(sys.argv[1], int(sys.argv[2]))
