"""`soliton serve`: settings, port, model, app, in that order; then it serves until a signal.

Owns how the server starts and ends. What it serves is `server.app.create_app`.
"""

import errno
import gc
import json
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import uvicorn
from pydantic import ValidationError
from pydantic_settings import SettingsError

from ..protocol import HttpProtocol
from ..settings import Settings
from .terminal import CommandError, CommandParser

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..lease import EngineLease

_MAX_HEADER_BYTES = 32 * 1024
_KEEP_ALIVE_S = 30
# Together below the 30 s that service managers wait before they kill.
_DRAIN_S = 23  # in which running requests may finish
_FAREWELL_S = 2  # in which those that did not are told that they are cut off


def main(argv: list[str]) -> int:
    """Serve until SIGINT or SIGTERM, then end cleanly with 0. Raises CommandError."""
    # Nothing that importing and loading make is garbage: looking for some costs a tenth of the
    # start, and later, in the middle of a stream, a pause.
    gc.disable()
    settings = _settings(argv)
    _configure_logging(settings.log_level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    # The port comes before the model: one that is in use is said at once.
    with _bound_socket(settings.host, settings.port) as sock:
        app, model_id = _load(settings)
        gc.freeze()
        gc.enable()
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_DRAIN_S + _FAREWELL_S,
        )
        url = _url(settings.host, sock.getsockname()[1])
        ready_line = _ready_line(url, settings, model_id)
        _Server(config, lease=app.state.lease, ready_line=ready_line).run([sock])
    # The app is in reference cycles: frozen, they and the engine would outlive the native module.
    gc.unfreeze()
    return 0


class _Server(uvicorn.Server):
    """uvicorn's server, but it says when it is ready, a signal is its ordinary end, and whoever it
    cuts off is told.
    """

    def __init__(self, config: uvicorn.Config, *, lease: "EngineLease", ready_line: str) -> None:
        super().__init__(config)
        self._lease = lease
        self._ready_line = ready_line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except OSError as error:  # another process began to listen after our bind
            await self.lifespan.shutdown()
            raise CommandError(f"cannot listen: {error.strerror}") from error
        print(self._ready_line, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # What still runs then ends with an error: uvicorn would drop the connections in mid-stream.
        with self._lease.closing_in(_DRAIN_S):
            await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again when the server has ended: an exit code, not 0.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)
        yield


def _leave(_signum: int, _frame: FrameType | None) -> NoReturn:
    """A signal while the model loads."""
    raise SystemExit(0)


def _settings(argv: list[str]) -> Settings:
    """The settings, with the flags over everything else. Raises CommandError."""
    parser = CommandParser(
        prog="soliton serve",
        description="Serve a model over HTTP. Each option is also an environment variable\n"
        "(SOLITON_PORT) and a key of the TOML file named by --config; a flag wins over a\n"
        "variable, a variable over the file.",
    )
    parser.add_argument("model", nargs="?", help="model directory (default: the built-in model)")
    for name, field in Settings.model_fields.items():
        if name == "model":
            continue
        flag = f"--{name.replace('_', '-')}"
        text = (field.description or "").replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag, action="store_true", default=None, help=text)
        else:
            unsaid = field.default_factory is not None or field.default in (None, ())
            default = "" if unsaid else f" (default: {field.default})"
            parser.add_argument(flag, metavar="X", help=text + default)
    given = {
        name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None
    }
    try:
        return Settings(**given)
    except ValidationError as error:
        raise CommandError(_validation_message(error)) from error
    except SettingsError as error:
        raise CommandError(str(error)) from error


def _bound_socket(host: str, port: int) -> socket.socket:
    """A socket that owns the address but does not listen yet. Raises CommandError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CommandError(f"host {host}: {error.strerror}") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"port {port} of {host} is in use; choose another: --port N"
            ) from error
        raise CommandError(f"cannot use port {port} of {host}: {error.strerror}") from error
    return sock


def _load(settings: Settings) -> "tuple[FastAPI, str]":
    """The app over the loaded model, and the model's name. Raises CommandError."""
    from ..app import create_app
    from .local import load_engine

    engine = load_engine(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        quantize=settings.quantize,
        kv_cache=settings.kv_cache,
        max_seq_len=settings.max_seq_len,
        threads=settings.threads,
        require_native=settings.require_native,
        panel_cache=settings.panel_cache,
        speculate=settings.speculate,
        draft_model=settings.draft_model,
        prefix_bytes=settings.prefix_cache_mb * 2**20,
        prefix_directory=settings.prefix_cache_dir,
    )
    return create_app(settings, engine), settings.served_name or engine.model_id


def _configure_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level == "info":  # uvicorn's four lines about starting say less than the ready line
        logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _url(host: str, port: int) -> str:
    """Where a client on this machine finds the server."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host.strip("[]"), host)
    return f"http://[{name}]:{port}" if ":" in name and "[" not in name else f"http://{name}:{port}"


def _ready_line(url: str, settings: Settings, model_id: str) -> str:
    body = json.dumps({"model": model_id, "prompt": "Once upon a time", "stream": True})
    key = " -H 'authorization: Bearer …'" if settings.api_keys else ""
    return (
        f"{model_id} is ready at {url} (Ctrl-C ends it); try: "
        f"curl -N {url}/v1/completions{key} -H 'content-type: application/json' -d '{body}'"
    )


def _validation_message(error: ValidationError) -> str:
    """What is wrong, option by option; values are shown but for the keys."""
    parts = []
    for detail in error.errors(include_url=False, include_context=False):
        message = detail["msg"].removeprefix("Value error, ")
        if not detail["loc"]:
            parts.append(message)
        elif detail["loc"][0] == "api_keys":
            parts.append(f"api_keys: {message}")
        else:
            parts.append(f"{detail['loc'][0]}: {message}, not {detail['input']!r}")
    return "; ".join(parts)
