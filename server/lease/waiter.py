"""A client that waits for an answer: who it is, since when, and whether it is still there.

Owns how a hang-up ends a wait. Knows neither queue nor engine.
"""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waiter:
    """One request, whose body has been read to its end."""

    key: str
    """Identifies the caller; keys take turns."""
    receive: Receive
    n_body: int
    """Length of the body in bytes."""
    state: dict[str, Any] = field(default_factory=dict)
    """What the layers around the route keep of the request."""
    since: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, request: Request) -> "Waiter":
        state: dict[str, Any] = request.scope["state"]
        return cls(state["caller"], request.receive, state.get("n_body", 0), state)

    @property
    def request_id(self) -> str:
        return str(self.state.get("request_id", ""))


async def attended(work: Awaitable[T], receive: Receive) -> T:
    """Await `work`. Raises ClientDisconnect when the client hangs up first."""
    task = asyncio.ensure_future(work)
    hang_up = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, hang_up), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        hang_up.cancel()
        await asyncio.gather(task, hang_up, return_exceptions=True)


async def forever() -> None:
    """Wait to be cancelled."""
    await asyncio.Event().wait()


async def nobody() -> Message:
    """The `receive` of a call that no client waits for."""
    await forever()
    return {"type": "http.disconnect"}


async def _disconnected(receive: Receive) -> None:
    """Return when the client has hung up. The body must have been read to its end."""
    while (await receive())["type"] != "http.disconnect":
        pass
