"""A server under test, seen from the driver: its process, its port, its debug routes."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .server import Options
from .wire import ask

_ROOT = Path(__file__).parent.parent.parent
_STOP_S = 40


@dataclass(slots=True)
class Site:
    """A server that runs."""

    port: int
    process: subprocess.Popen[str]
    key: str | None = None
    """Opens the debug routes, when keys are set."""
    _audited: int = field(default=0, init=False)

    async def get(self, path: str) -> Any:
        """The JSON of a GET. Raises RuntimeError when it is refused."""
        reply = await ask(self.port, path, key=self.key)
        if reply.end != "done":
            raise RuntimeError(f"{path}: {reply.end} {reply.status} {reply.detail}")
        return reply.events[0]

    async def start(self) -> None:
        """Begin to watch the event loop; earlier audit records are forgotten."""
        await self.get("/debug/start")
        await self.audit()

    async def state(self) -> dict[str, Any]:
        state: dict[str, Any] = await self.get("/debug/state")
        return state

    async def audit(self) -> list[dict[str, Any]]:
        """What has ended since the last call. Call it before the ring overflows."""
        records: list[dict[str, Any]] = await self.get(f"/debug/audit?after={self._audited}")
        if records:
            self._audited = records[-1]["n"]
        return records

    async def plant(self, control: str = "", *, every: int = 1) -> None:
        """Plant a bug, or none."""
        await self.get(f"/debug/control?name={quote(control)}&every={every}")

    async def idle(self, *, seconds: float = 30.0) -> bool:
        """Whether the engine is free and the queue empty within that time."""
        for _ in range(int(seconds / 0.02)):
            state = await self.state()
            if not state["busy"] and not state["n_waiting"]:
                return True
            await asyncio.sleep(0.02)
        return False

    def stop(self) -> int:
        """Send SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_S)


def spawn(options: Options) -> subprocess.Popen[str]:
    """Start the process; `ready_port` waits for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.soak.server", options.as_json],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


def ready_port(process: subprocess.Popen[str]) -> int:
    """Block until the server says that it is ready. Raises RuntimeError if it ends instead."""
    assert process.stdout
    match = re.search(r" is ready at http://[^ ]*:(\d+) ", process.stdout.readline())
    if match is None:
        process.kill()
        raise RuntimeError(f"the server did not start: exit code {process.wait()}")
    return int(match[1])


@contextmanager
def serving(options: Options, *, key: str | None = None) -> Iterator[Site]:
    """A server while the block runs."""
    process = spawn(options)
    try:
        yield Site(ready_port(process), process, key)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()
