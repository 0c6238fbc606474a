"""The debug routes of the server under test: its state, its audit ring, its planted bugs.

Owns what the process reports about itself. Never part of the released server.
"""

import asyncio
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from server.lease.lease import EngineLease

from .audit import Audit
from .controls import Controls
from .model import SoakModel

LAG_S = 0.0001  # of one step of the histogram
N_LAGS = 2001
_TICK_S = 0.002
_SWEEP_S = 0.02


class LoopLag:
    """How late the event loop comes back to a task that sleeps for two milliseconds."""

    def __init__(self, audit: Audit) -> None:
        self.counts = [0] * N_LAGS
        """How often it was this many tenths of a millisecond late; the last entry means "or more".
        """
        self._audit = audit
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts from zero; the task runs as long as the process."""
        self.counts = [0] * N_LAGS
        if self._task is None:
            self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        swept = time.monotonic()
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            now = time.monotonic()
            lag = round((now - before - _TICK_S) / LAG_S)
            self.counts[min(max(lag, 0), N_LAGS - 1)] += 1
            if now - swept > _SWEEP_S:
                self._audit.sweep()
                swept = now


def debug_routes(
    lease: EngineLease, audit: Audit, controls: Controls, model: SoakModel | None
) -> APIRouter:
    """`model` is None when the engine is a real one."""
    router = APIRouter()
    lag = LoopLag(audit)

    @router.get("/debug/start")
    async def start() -> dict[str, Any]:
        """Begin to watch the event loop, with an empty histogram."""
        lag.start()
        return {}

    @router.get("/debug/state")
    async def state() -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "busy": lease.busy,
            "n_waiting": lease.n_waiting,
            "ready": lease.ready,
            "heartbeat": lease.heartbeat,
            "native_max": None if model is None else model.n_inside_max,
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "rss": _rss(),
        }

    @router.get("/debug/lags")
    async def lags() -> list[int]:
        """The histogram since the start, in steps of LAG_S."""
        return lag.counts

    @router.get("/debug/audit")
    async def ended(after: int) -> list[dict[str, Any]]:
        audit.sweep()
        return audit.ended(after=after)

    @router.get("/debug/control")
    async def control(name: str = "", every: int = 1) -> dict[str, Any]:
        """Plant one bug, or none."""
        controls.plant(name, every=every)
        return {}

    return router


def _rss() -> int:
    """Resident bytes that this process shares with no other."""
    fields = {}
    with suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
            name, value, *_ = line.split()
            fields[name] = 1024 * int(value)
    return fields["Rss:"]
