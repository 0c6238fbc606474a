"""A loaded app on bound sockets, until a signal.

Owns the server's process from there on: its limits, the line that says it is ready, and how it ends
when the engine is lost.
"""

import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette

from ..http.protocol import http_protocol
from ..http.socket_options import ACCEPTED_AT_ONCE, BACKLOG
from ..process.drain import DrainingServer
from ..process.last_resort import end_process, end_process_in, guard_interpreter
from ..settings import Settings
from ..stream.access_log import log_refused
from .terminal import CommandError

_KEEP_ALIVE_S = 30
_FAREWELL_S = 2  # time to send clients the error when the engine is lost


def run(app: Starlette, settings: Settings, socks: list[socket.socket], *, ready_line: str) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, then drain. A second signal ends the process at once,
    with exit code 128 plus its number. If the engine is lost, the process ends with exit code 70.

    `socks`: of the port and, if there is one, of the health port. Raises CommandError.
    """
    numbers = [sock.getsockname()[1] for sock in socks]
    config = uvicorn.Config(
        app,
        http=http_protocol(
            settings,
            health_port=numbers[1] if numbers[1:] else None,
            on_refused=log_refused if settings.access_log else lambda _: None,
        ),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config, app, settings, ready_line)
    app.state.lease.on_failed = server.fail
    app.state.watchdog.on_tick = guard_interpreter(settings.hang_seconds)
    server.run(socks)
    if server.has_failed:
        end_process()


class _Server(DrainingServer):
    """A draining server that prints a line when it is ready."""

    def __init__(self, config: uvicorn.Config, app: Starlette, settings: Settings, ready: str):
        super().__init__(
            config,
            lease=app.state.lease,
            trials=app.state.trials,
            readers=app.state.slow_readers,
            kept=app.state.kept,
            drain_seconds=settings.drain_seconds,
        )
        self._ready_line = ready
        self.has_failed = False

    def fail(self) -> None:
        """The engine is lost: clients get an error, then the process ends. From any thread."""
        self.has_failed = self.should_exit = True
        end_process_in(_FAREWELL_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:  # another process began to listen after our bind
            await self.lifespan.shutdown()
            raise CommandError(f"cannot listen: {error.strerror}") from error
        for sock in sockets or ():
            sock.listen(BACKLOG)  # uvicorn has one number for this and ACCEPTED_AT_ONCE
        with suppress(OSError):  # a full disk
            print(self._ready_line, flush=True)
