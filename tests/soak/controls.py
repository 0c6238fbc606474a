"""Negative controls: bugs planted in a running server, one at a time, that the checks must catch.

Bugs on the wire are an ASGI layer around the app, bugs in the queue wrap the lease, and one bug is
in the model. Without a planted bug, all of them pass everything on unchanged.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import AbortFlag
from server.lease.lease import EngineLease, Ticket
from server.lease.trials import Trials

from .audit import AuditedFeed
from .model import SoakModel

_PATHS = ("/v1/completions", "/v1/chat/completions")
_HELD_S = 1.0
_FOR_EVER_S = 1e6
_LEAK = 1024
_SPARE_EVENTS = 512


class Controls:
    """The planted bug, if any. Used on the event loop, except for what the engine thread calls."""

    def __init__(self, lease: EngineLease, model: SoakModel | None, trials: Trials) -> None:
        self.name = ""
        self._every = 1
        self._n = 0
        self._model = model
        self._other: list[bytes] = []  # events of another stream
        self._leaked: list[Any] = []
        self._lease = lease
        self._submit = lease.submit
        self._cancel = lease.cancel
        self._withdraw = lease.withdraw
        self._pop = lease._queue.pop
        lease.submit = self._submitted  # type: ignore[method-assign]
        lease.cancel = self._cancelled  # type: ignore[method-assign]
        lease.withdraw = self._withdrawn  # type: ignore[method-assign]
        lease._queue.pop = self._popped  # type: ignore[method-assign]
        self._give_up_trial = trials._lease.cancel
        trials._lease.cancel = self._trial_cancelled  # type: ignore[method-assign]
        self._ticks: asyncio.Task[None] | None = None

    def plant(self, name: str, *, every: int) -> None:
        """The bug strikes at every `every`-th chance: an event, a request or an abort. A memory
        leak is `every` KiB.
        """
        self.name, self._every, self._n = name, every, 0
        if self._model is not None:
            self._model.n_stale = 0
        AuditedFeed.waits_for_readers = name == "wait for readers"
        if name == "block loop":
            self._ticks = asyncio.create_task(_block())
        elif self._ticks is not None:
            self._ticks.cancel()
            self._ticks = None
        for leaked in self._leaked:
            if isinstance(leaked, int):
                os.close(leaked)
            elif isinstance(leaked, asyncio.Task):
                leaked.cancel()
        self._leaked.clear()

    def layer(self, app: ASGIApp) -> ASGIApp:
        """The app with the bugs on the wire."""

        async def planted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] in _PATHS and self.name:
                await self._request(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return planted

    def _strikes(self, name: str) -> bool:
        if self.name != name:
            return False
        self._n += 1
        return self._n % self._every == 0

    # On the wire.

    async def _request(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if self.name in ("leak memory", "leak all"):
            self._leaked.append(bytearray(b"x") * (_LEAK * self._every))
        if self.name == "leak all":
            self._leaked.append(os.open(os.devnull, os.O_RDONLY))
            self._leaked.append(asyncio.create_task(asyncio.sleep(_FOR_EVER_S)))
        if self._strikes("fail"):
            start = {"type": "http.response.start", "status": 500}
            await send({**start, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        if self._strikes("ignore"):
            await asyncio.sleep(_FOR_EVER_S)
        tamper = _Tamper(self, send)
        await app(scope, receive, tamper.send)
        self._other = tamper.seen or self._other

    def event(self, events: list[bytes], index: int) -> bytes:
        """What is sent for an event that holds text."""
        event = events[index]
        if self._strikes("drop token"):
            return b""
        if self._strikes("repeat token"):
            return event + event
        if self._strikes("garble token"):
            return event.replace(b'"text":"', b'"text":"?', 1)
        if self.name == "swap requests" and 4 < index < len(self._other):
            return self._other[index]
        return event

    def ends_silently(self) -> bool:
        return self._strikes("end silently")

    def ends_never(self) -> bool:
        return self._strikes("never end")

    def hides_retry(self) -> bool:
        return self.name == "hide retry-after"

    # In the queue.

    def _submitted(self, work: Callable[[AbortFlag], None], **options: Any) -> Ticket:
        if self.name == "one key for all":
            options["key"] = ""
        if self.name == "run the expired":
            options["deadline"] = None

        def planted(abort: AbortFlag) -> None:
            work(abort)
            if abort.is_set() and self._strikes("hold lease"):
                time.sleep(_HELD_S)
            if self._model is not None and abort.is_set() and self.name == "stale cache":
                self._model.n_stale = 1

        return self._submit(planted, **options)

    def _cancelled(self, ticket: Ticket) -> bool:
        if self.name == "run the expired" and ticket.admitted_at is None:
            return False
        return False if self.name == "no release on abort" else self._cancel(ticket)

    def _trial_cancelled(self, ticket: Ticket) -> bool:
        return False if self.name == "keep trials" else self._give_up_trial(ticket)

    def _withdrawn(self, ticket: Ticket) -> bool:
        """Whether the client is told that its time is over."""
        if self.name == "run the expired":
            return ticket.admitted_at is None
        return self._withdraw(ticket)

    def _popped(self, *, may_swap: bool) -> Ticket | None:
        if self.name == "last come first served":
            for queue in self._lease._queue._waiting.values():
                for items in queue._waiting.values():
                    items.move_to_end(next(reversed(items)), last=False)
        return self._pop(may_swap=may_swap)


async def _block() -> None:
    """Keep the event loop busy with something else, again and again."""
    while True:
        await asyncio.sleep(0.05)
        time.sleep(0.05)


class _Tamper:
    """One answer on its way out."""

    def __init__(self, controls: Controls, send: Send) -> None:
        self.seen: list[bytes] = []
        self._controls = controls
        self._send = send
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            self._is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            if self._controls.hides_retry():
                message["headers"] = [h for h in message["headers"] if h[0] != b"retry-after-ms"]
        elif self._is_stream:
            message = {**message, "body": self._tampered(message.get("body", b""))}
            if b"[DONE]" in message["body"] and self._controls.ends_never():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(_FOR_EVER_S)
        await self._send(message)

    def _tampered(self, body: bytes) -> bytes:
        *events, rest = body.split(b"\n\n")
        out = []
        for event in events:
            if event.startswith(b'data: {"id"'):
                if len(self.seen) == _SPARE_EVENTS:
                    self.seen.clear()
                self.seen.append(event + b"\n\n")
                out.append(self._controls.event(self.seen, len(self.seen) - 1))
            elif event != b"data: [DONE]" or not self._controls.ends_silently():
                out.append(event + b"\n\n")
        return b"".join(out) + rest
