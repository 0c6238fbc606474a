"""One request in an ASGI app without a socket: the head of its answer, then bytes.

Owns what an app may see of a connection: a body that is there, and a hang-up, when the caller no
longer wants the answer. Whatever is ready together is passed on together, so that fast tokens share
the cost of a message.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from .routed import Head, Routed

# Unread bytes of an answer before its app has to wait.
_MOST_UNREAD = 1 << 20
# Time for an app to notice that nobody waits for its answer.
_LEAVE_S = 5.0


async def answered(
    app: ASGIApp, routed: Routed, *, on_begun: Callable[[dict[str, Any]], None]
) -> AsyncGenerator[Head | bytes]:
    """The answer of `app`. `on_begun` receives what its layers keep of the request, before the
    head. Raises what the app raises before the head; later it ends the answer.
    """
    call = _Call(routed)
    task = asyncio.ensure_future(app(_scope(routed, call.state), call.receive, call.send))
    task.add_done_callback(lambda _: call.changed.set())
    try:
        while call.start is None and not task.done():
            await call.wait()
        if call.start is None:
            await task
            raise RuntimeError("the app did not answer")
        await asyncio.sleep(0)  # the first bytes follow at once, if they are ready
        on_begun(call.state)
        start = call.start
        yield Head(start["status"], list(start["headers"]), call.take())
        while not call.is_complete and not task.done():
            await call.wait()
            if body := call.take():
                yield body
        if body := call.take():
            yield body
        await task
    finally:
        call.hang_up()
        if not task.done():
            await asyncio.wait([task], timeout=_LEAVE_S)
            task.cancel()


class _Call:
    """The connection, as the app sees it."""

    def __init__(self, routed: Routed) -> None:
        self.state: dict[str, Any] = {}
        self.start: Message | None = None
        self.is_complete = False
        self.changed = asyncio.Event()
        self._unread = bytearray()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._body: bytes | None = routed.body
        self._gone = asyncio.Event()

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._gone.is_set():
            return
        if message["type"] == "http.response.start":
            self.start = message
        else:
            self._unread += message.get("body", b"")
            self.is_complete = not message.get("more_body", False)
        self.changed.set()
        if len(self._unread) > _MOST_UNREAD:
            self._has_room.clear()
            await self._has_room.wait()

    async def wait(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    def take(self) -> bytes:
        body = bytes(self._unread)
        self._unread.clear()
        self._has_room.set()
        return body

    def hang_up(self) -> None:
        self._gone.set()
        self._has_room.set()


def _scope(routed: Routed, state: dict[str, Any]) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": routed.method,
        "scheme": routed.scheme,
        "path": routed.path,
        "raw_path": routed.raw_path,
        "query_string": routed.query,
        "root_path": "",
        "headers": routed.headers,
        "client": routed.client,
        "server": None,
        "state": state,
    }
