"""Requests to an app without a socket, so any header and path reaches it, valid or not."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Scope

from tests.support.live_server import Answer

Headers = Sequence[tuple[str, str | bytes]]


HERE: Headers = [("host", "127.0.0.1")]


def ask(app: FastAPI, method: str, path: str, headers: Headers = HERE, body: bytes = b"") -> Answer:
    """`asked` for code without an event loop."""
    return asyncio.run(asked(app, method, path, headers, body))


async def asked(
    app: FastAPI,
    method: str,
    path: str,
    headers: Headers = HERE,
    body: bytes = b"",
    *,
    type_: str = "http",
) -> Answer:
    """The answer of `app`. Its lifespan does not run, so the engine takes no work."""
    scope: Scope = {
        "type": type_,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), _bytes(value)) for name, value in headers],
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "extensions": {"websocket.http.response": {}},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    names = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], names, b"".join(message["body"] for message in rest))


def paths_of(routes: Iterable[Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """(path, methods) of all routes."""
    for route in routes:
        yield route.path.replace("{model_id:path}", "fake"), frozenset(route.methods)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
