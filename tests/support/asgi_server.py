"""An app on a real socket, in the event loop of its test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from server.commands.listening import bound_sockets, listening
from server.settings import Settings


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def asgi_server(app: ASGIApp, settings: Settings) -> AsyncIterator[str]:
    """The URL of `app`, which serves while the block runs."""
    with bound_sockets(settings) as socks:
        ports = [sock.getsockname()[1] for sock in socks]
        server = _Server(listening(app, settings, ports))
        task = asyncio.create_task(server.serve(socks))
        try:
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{ports[0]}"
        finally:
            server.should_exit = True
            await task
