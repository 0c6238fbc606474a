"""`soliton serve`: port, model, app, in that order; then serves until a signal.

Owns how the server starts and ends. `serve_options.py` owns the command line, and
`server.app.create_app` what is served.
"""

import errno
import gc
import json
import logging
import socket
import time
from contextlib import ExitStack, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import uvicorn

from ..http.host_names import url_on_this_machine
from ..http.protocol import http_protocol
from ..http.socket_options import ACCEPTED_AT_ONCE, BACKLOG
from ..process.drain import DrainingServer, signals_handled
from ..process.last_resort import end_process, end_process_in, guard_interpreter
from ..process.logs import configure_logging
from ..settings import Settings, unknown_variables
from ..stream.access_log import log_refused
from .terminal import CommandError

if TYPE_CHECKING:
    from fastapi import FastAPI

_logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 30
_PORTS_TRIED = 20  # to find a free one when that of the options is in use
_FAREWELL_S = 2  # time to send clients the error when the engine is lost


def main(settings: Settings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP, then drain and return 0. A second signal ends the
    process at once, with exit code 128 plus its number. If the engine is lost, the process ends
    with exit code 70. Raises CommandError.
    """
    configure_logging(settings.log_level)
    for name in unknown_variables():
        _logger.warning("no option has the variable %s", name)
    leaving = _Leaving()
    # Bind the port before loading the model, so that a port in use is reported at once.
    with signals_handled(leaving), ExitStack() as bound:
        ports = {"--port": settings.port, "--health-port": settings.health_port}
        socks = [
            bound.enter_context(_bound_socket(settings.host, port, flag))
            for flag, port in ports.items()
            if port is not None
        ]
        _check_reach(settings, socks[0])
        numbers = [sock.getsockname()[1] for sock in socks]
        app, model_id = load_app(settings)
        leaving.check()
        gc.freeze()
        gc.enable()
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
        for number in numbers[1:]:
            _logger.info("health checks are on port %d too", number)
        ready_line = _ready_line(url_on_this_machine(settings.host, numbers[0]), settings, model_id)
        server = _Server(config, app, settings, ready_line)
        app.state.lease.on_failed = server.fail
        app.state.watchdog.on_tick = guard_interpreter(settings.hang_seconds)
        server.run(socks)
        if server.has_failed:
            end_process()
    # The app is part of reference cycles. Frozen, they and the engine would outlive the native
    # module.
    gc.unfreeze()
    return 0


class _Server(DrainingServer):
    """A draining server that prints a line when it is ready."""

    def __init__(self, config: uvicorn.Config, app: "FastAPI", settings: Settings, ready: str):
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


class _Leaving:
    """The signal handler while the model loads."""

    said = False

    def __call__(self, _signum: int, _frame: FrameType | None) -> NoReturn:
        self.said = True
        raise SystemExit(0)

    def check(self) -> None:
        """Exit if the exception was raised where Python drops it, as in a finalizer."""
        if self.said:
            raise SystemExit(0)


def _bound_socket(host: str, port: int, flag: str) -> socket.socket:
    """A socket that owns the address but does not listen yet. `flag`: the port's option. Raises
    CommandError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CommandError(f"host {host}: {error.strerror}") from error
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            free = next(filter(partial(_is_free, family, address), _ports_after(port)), "N")
            raise CommandError(
                f"port {port} of {host} is in use; choose another one: {flag} {free}"
            ) from error
        raise CommandError(f"cannot use port {port} of {host}: {error.strerror}") from error
    return sock


def _ports_after(port: int) -> range:
    return range(port + 1, min(port + _PORTS_TRIED, 65535) + 1)


def _is_free(family: int, address: tuple[Any, ...], port: int) -> bool:
    """Whether that port of the address can be bound now."""
    with socket.socket(family, socket.SOCK_STREAM) as sock, suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address[0], port, *address[2:]))
        return True
    return False


def _check_reach(settings: Settings, sock: socket.socket) -> None:
    """Check the bound address, which a host name resolves to only now. Raises CommandError."""
    try:
        settings.check_reach(sock.getsockname()[0])
    except ValueError as error:
        raise CommandError(str(error)) from error


def load_app(settings: Settings) -> "tuple[FastAPI, str]":
    """The app over the loaded model, and the model's name. Raises CommandError."""
    from engine import LoadOptions

    from ..app import create_app
    from ..kept.files import KeptDirectoryError
    from .local import load_engine
    from .model_path import model_path

    options = LoadOptions(
        device=settings.device,
        dtype=settings.dtype,
        max_seq_len=settings.max_seq_len,
        quantize=settings.quantize,
        kv_cache=settings.kv_cache,
        chat_template=settings.chat_template,
        n_threads=settings.threads,
        require_native=settings.require_native,
        panel_cache=settings.panel_cache,
        speculate=settings.speculate,
        draft_model=settings.draft_model,
        prefix_bytes=settings.prefix_cache_mb * 2**20,
        prefix_directory=settings.prefix_cache_dir,
        prefix_disk_bytes=settings.prefix_cache_disk_mb * 2**20,
    )
    begin = time.monotonic()
    engine = load_engine(model_path(settings.model), options)
    try:
        app = create_app(settings, engine, load_seconds=time.monotonic() - begin)
    except KeptDirectoryError as error:
        raise CommandError(f"--keep-streams-dir: {error}") from error
    return app, (*settings.served_model_name, engine.model_id)[0]


def _ready_line(url: str, settings: Settings, model_id: str) -> str:
    body = json.dumps({"model": model_id, "prompt": "Once upon a time", "stream": True})
    key = " -H 'authorization: Bearer …'" if settings.api_keys else ""
    return (
        f"{model_id} is ready at {url} (stop with Ctrl-C); try: "
        f"curl -N {url}/v1/completions{key} -H 'content-type: application/json' -d '{body}'"
    )
