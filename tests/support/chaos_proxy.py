"""A TCP proxy with the faults of real networks: delay, stall, dribble, cut, go silent.

Owns the faults and the seed that chooses one for each connection. Knows no HTTP.
"""

import asyncio
import random
import socket
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from tests.soak.wire import hang_up

FAULTS = ("none", "delay", "stall", "dribble", "reset", "truncate", "half-open")
CUTS = ("reset", "truncate", "half-open")
_STALL_S = 0.3
_HALF_OPEN_S = 1.0
_CUT_BYTES = 12_000  # a cut comes somewhere before this byte


class ChaosProxy:
    """Forwards a loopback port of its own to `port`. An async context manager."""

    def __init__(self, port: int, *, seed: int, faults: tuple[str, ...] = FAULTS) -> None:
        self.port = 0
        self.cut: set[int] = set()
        """The client ports of connections that the proxy has ended itself."""
        self._target = port
        self._chance = random.Random(seed)
        self._faults = faults
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._start(self._accept())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, address = await loop.sock_accept(self._listener)
            self._start(self._serve(client, address[1], self._chance.choice(self._faults)))

    async def _serve(self, client: socket.socket, port: int, fault: str) -> None:
        loop = asyncio.get_running_loop()
        cut = self._chance.randrange(_CUT_BYTES)
        self.cut.discard(port)
        server = socket.socket()
        server.setblocking(False)
        pipes: list[asyncio.Task[None]] = []
        try:
            await loop.sock_connect(server, ("127.0.0.1", self._target))
            pipes = [
                asyncio.create_task(self._pipe(client, server, "none", cut)),
                asyncio.create_task(self._pipe(server, client, fault, cut)),
            ]
            # The first side to close closes both; the fault has decided how.
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
            if fault in CUTS and pipes[1].done():
                self.cut.add(port)
        except OSError:
            pass
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            for sock in (client, server):
                hang_up(sock, "rst" if fault == "reset" else "fin")

    async def _pipe(self, source: socket.socket, sink: socket.socket, fault: str, cut: int) -> None:
        loop = asyncio.get_running_loop()
        n = 0
        while data := await loop.sock_recv(source, 1 << 14):
            n += len(data)
            if fault == "delay":
                await asyncio.sleep(self._chance.uniform(0, 0.02))
            elif fault == "stall" and n > cut:
                await asyncio.sleep(_STALL_S)
                cut = 1 << 60
            elif fault in ("reset", "truncate") and n > cut:
                await loop.sock_sendall(sink, data[: max(0, len(data) - (n - cut))])
                return
            elif fault == "half-open" and n > cut:
                await asyncio.sleep(_HALF_OPEN_S)
                return
            if fault == "dribble":
                for i in range(len(data)):
                    await loop.sock_sendall(sink, data[i : i + 1])
            else:
                await loop.sock_sendall(sink, data)
