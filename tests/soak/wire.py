"""A client on a raw socket that trusts nothing: strict HTTP/1.1, strict Server-Sent Events.

Owns one request from connect to the last byte, and how a client leaves in the middle. Times are
CLOCK_MONOTONIC in seconds. Any deviation from this server's form on the wire is a WireError.
"""

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [ -~]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([ -~\t]*)")
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,8}")

# Steps at which a client may leave, before the events, which count from 1.
AT_CONNECT, IN_HEAD, IN_BODY, SENT, AT_HEAD = range(-4, 1)
AFTER_LAST = 1_000_000


class WireError(Exception):
    """The server sent bytes that its form does not allow."""


class Leave(NamedTuple):
    """When a client hangs up, at a step or `after` seconds, and how."""

    how: str
    """fin, rst, or late: bytes of another request, then FIN."""
    step: int | None = None
    after: float | None = None


@dataclass(slots=True)
class Reply:
    """What a client saw."""

    end: str = "open"
    """done, error (in band), refused (a status), left (the client did), silent, stuck, broken
    (WireError), unreachable (no connection)."""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    """The JSON of each event, or of the body when it is no stream."""
    n_pings: int = 0
    detail: str = ""
    port: int = 0
    """The client's port."""
    sent_at: float = 0.0
    head_at: float | None = None
    first_at: float | None = None
    over_at: float = 0.0
    gap: float = 0.0
    """The longest silence within the answer, once it has begun."""

    @property
    def text(self) -> str:
        return "".join(map(_text, self.events))

    @property
    def error(self) -> dict[str, Any]:
        """The content of the error envelope; empty without one."""
        last = self.events[-1] if self.events else {}
        error: dict[str, Any] = last.get("error", {}) if isinstance(last, dict) else {}
        return error


def _text(event: Any) -> str:
    choices = event.get("choices") if isinstance(event, dict) else None
    if not choices:
        return ""
    choice = choices[0]
    part = choice.get("delta") or choice.get("message")
    return str(part.get("content") or "") if part is not None else str(choice.get("text", ""))


class _Body:
    """Removes the transfer coding, strictly."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.done = False
        self._buffer = b""
        self._chunked = headers.get("transfer-encoding") == "chunked"
        length = headers.get("content-length", "")
        if self._chunked == bool(length):
            raise WireError("neither or both of content-length and chunked")
        self._left = 0 if self._chunked else int(length)
        self.done = not self._chunked and not self._left

    def feed(self, data: bytes) -> bytes:
        if self.done and data:
            raise WireError("bytes behind the end of the answer")
        if not self._chunked:
            if len(data) > self._left:
                raise WireError("more bytes than content-length")
            self._left -= len(data)
            self.done = not self._left
            return data
        self._buffer += data
        return b"".join(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        while not self.done:
            line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                return
            if not _CHUNK.fullmatch(line):
                raise WireError(f"chunk size {line[:20]!r}")
            size = int(line, 16)
            if len(rest) < size + 2:
                return
            if rest[size : size + 2] != b"\r\n":
                raise WireError("a chunk without its end")
            self._buffer = rest[size + 2 :]
            if not size:
                self.done = True
                if self._buffer:
                    raise WireError("bytes behind the last chunk")
                return
            yield rest[:size]


class _Events:
    """Reads `data: {json}` and `: ping`, LF only, ASCII only, one line each."""

    def __init__(self) -> None:
        self.buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        *events, self.buffer = (self.buffer + data).split(b"\n\n")
        for event in events:
            if not event.startswith((b"data: ", b": ping")) or b"\n" in event or b"\r" in event:
                raise WireError(f"no event of this server: {event[:60]!r}")
        return events


class _NumberedEvents(_Events):
    """The same behind a line `id: N`, N counting on; a ping has no blank line."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._n = after

    def feed(self, data: bytes) -> list[bytes]:
        *events, self.buffer = (self.buffer + data).split(b"\n\n")
        return [event for numbered in events for event in self._read(numbered)]

    def _read(self, event: bytes) -> Iterator[bytes]:
        while event.startswith(b": ping\n"):
            event = event.removeprefix(b": ping\n")
            yield b": ping"
        self._n += 1
        head, _, rest = event.partition(b"\n")
        if head != b"id: %d" % self._n or not rest.startswith(b"data: ") or b"\n" in rest:
            raise WireError(f"not event {self._n}: {event[:60]!r}")
        yield rest


class _Exchange:
    """One request on one socket."""

    def __init__(
        self,
        sock: socket.socket,
        reply: Reply,
        leave: Leave | None,
        after: int | None,
        on_event: Callable[[Any], None],
    ) -> None:
        self._sock = sock
        self._reply = reply
        self._leave = leave
        self._after = after
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._said: str | None = None  # the event that ends a stream

    async def run(self, address: tuple[str, int], request: bytes, n_head: int) -> None:
        await self._loop.sock_connect(self._sock, address)
        self._reply.port = self._sock.getsockname()[1]
        self._reply.sent_at = self._last = time.monotonic()
        self._pass(AT_CONNECT)
        if self._leave is not None and self._leave.step in (IN_HEAD, IN_BODY):
            whole = self._leave.step == IN_BODY
            cut = (n_head + len(request)) // 2 if whole else n_head // 2
            await self._loop.sock_sendall(self._sock, request[:cut])
            self._pass(IN_HEAD)
            self._pass(IN_BODY)
        await self._loop.sock_sendall(self._sock, request)
        self._pass(SENT)
        rest = await self._head()
        self._pass(AT_HEAD)
        if self._reply.headers.get("content-type", "").startswith("text/event-stream"):
            await self._stream(rest)
        else:
            await self._whole(rest)
        self._pass(AFTER_LAST)

    def _pass(self, step: int) -> None:
        if self._leave is not None and self._leave.step == step:
            raise _Left

    async def _receive(self) -> bytes:
        data = await self._loop.sock_recv(self._sock, 1 << 16)
        now = time.monotonic()
        if self._reply.head_at is not None:
            self._reply.gap = max(self._reply.gap, now - self._last)
        self._last = now
        return data

    async def _head(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = await self._receive()
            if not piece:
                raise _Cut
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        status = _STATUS.fullmatch(first)
        if status is None:
            raise WireError(f"status line {first[:60]!r}")
        reply = self._reply
        reply.head_at = self._last
        reply.status = int(status[1])
        for line in lines:
            match = _HEADER.fullmatch(line)
            if match is None:
                raise WireError(f"header {line[:60]!r}")
            reply.headers[match[1].decode().lower()] = match[2].decode()
        return rest

    async def _whole(self, data: bytes) -> None:
        body = _Body(self._reply.headers)
        content = body.feed(data)
        while not body.done:
            data = await self._receive()
            if not data:
                raise _Cut
            content += body.feed(data)
        self._reply.events.append(json.loads(content) if content else None)
        self._reply.first_at = self._last
        self._reply.end = "done" if self._reply.status == 200 else "refused"

    async def _stream(self, data: bytes) -> None:
        body = _Body(self._reply.headers)
        events = _Events() if self._after is None else _NumberedEvents(self._after)
        while True:
            for event in events.feed(body.feed(data)):
                self._event(event)
            if body.done:
                break
            data = await self._receive()
            if not data:
                raise _Cut
        if events.buffer.removeprefix(b": ping\n"):
            raise WireError("the stream ends in the middle of an event")
        self._reply.end = self._said or "silent"

    def _event(self, event: bytes) -> None:
        reply = self._reply
        if self._said is not None:
            raise WireError("an event behind the last one")
        if event.startswith(b":"):
            reply.n_pings += 1
            return
        if not event.isascii():
            raise WireError("an event that is not ASCII")
        if event == b"data: [DONE]":
            self._said = "done"
            return
        reply.events.append(json.loads(event[6:]))
        if reply.first_at is None:
            reply.first_at = self._last
        if "error" in reply.events[-1]:
            self._said = "error"
        self._on_event(reply.events[-1])
        self._pass(len(reply.events))


class _Left(Exception):
    """The client hangs up now."""


class _Cut(Exception):
    """The connection ended before the answer did."""


async def ask(
    port: int,
    path: str,
    body: Mapping[str, Any] | bytes | None = None,
    *,
    leave: Leave | None = None,
    patience: float = 60.0,
    key: str | None = None,
    receive_buffer: int | None = None,
    after: int | None = None,
    on_event: Callable[[Any], None] = lambda _: None,
    method: str | None = None,
) -> Reply:
    """POST `body` (bytes, or an object sent as JSON), or GET without one, and read the answer.

    After `patience` seconds the result is "stuck". `after`: the events have numbers, from the one
    after it on. `on_event`: called with each event as it comes.
    """
    reply = Reply()
    head, content = request_bytes(path, body, key=key, method=method)
    limit = patience if leave is None or leave.after is None else min(patience, leave.after)
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    try:
        async with asyncio.timeout(limit):
            exchange = _Exchange(sock, reply, leave, after, on_event)
            await exchange.run(("127.0.0.1", port), head + content, len(head))
    except _Left:
        reply.end = "left"
    except TimeoutError:
        reply.end = "stuck" if leave is None or leave.after is None else "left"
    except (_Cut, OSError) as error:
        reply.end = "unreachable" if not reply.sent_at else "silent"
        reply.detail = repr(error)
    except (WireError, ValueError) as error:
        reply.end, reply.detail = "broken", str(error)
    finally:
        reply.over_at = time.monotonic()
        hang_up(sock, "fin" if leave is None else leave.how)
    return reply


def request_bytes(
    path: str,
    body: Mapping[str, Any] | bytes | None,
    *,
    key: str | None = None,
    method: str | None = None,
) -> tuple[bytes, bytes]:
    """Head and content of a request."""
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    method = method or ("GET" if body is None else "POST")
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1"]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(content)}"]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode(), content


def hang_up(sock: socket.socket, how: str) -> None:
    """Close as `Leave.how` says."""
    if how == "late":
        with suppress(OSError):
            sock.send(b"GET /health/live HTTP/1.1\r\n")
    if how == "rst":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
