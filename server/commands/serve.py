"""`soliton serve`: port, model, app, in that order; then serves until a signal.

Owns how the server starts and ends. `listening.py` owns its sockets, `serve_options.py` the command
line, and `server.app.create_app` what is served.
"""

import gc
import json
import logging
import socket
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import uvicorn

from ..http.host_names import url_on_this_machine
from ..http.slow_readers import SlowReaders
from ..http.socket_options import BACKLOG
from ..process.drain import DrainingServer, EngineWork, Work, signals_handled
from ..process.last_resort import end_process, end_process_in, guard_interpreter
from ..process.logs import configure_logging
from ..process.service_manager import sign_of_life, tell
from ..settings import Settings, unknown_variables
from .listening import bound_sockets, listening
from .terminal import CommandError

if TYPE_CHECKING:
    from fastapi import FastAPI

_logger = logging.getLogger(__name__)

_FAREWELL_S = 2  # time to send clients the error when the engine is lost


def main(settings: Settings) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP, then drain and return 0. A second signal ends the
    process at once, with exit code 128 plus its number. If the engine is lost, the process ends
    with exit code 70. Raises CommandError.
    """
    configure_logging(settings.log_level)
    for name in unknown_variables():
        _logger.warning("no option has the variable %s", name)
    leaving = Leaving()
    with signals_handled(leaving), bound_sockets(settings) as socks:
        numbers = [sock.getsockname()[1] for sock in socks]
        app, model_id = load_app(settings)
        leaving.check()
        gc.freeze()
        gc.enable()
        for number in numbers[1:]:
            _logger.info("health checks are on port %d too", number)
        state = app.state
        server = ReadyServer(
            listening(app, settings, numbers),
            work=EngineWork(state.lease, state.trials, state.kept),
            readers=state.slow_readers,
            drain_seconds=settings.drain_seconds,
            ready_line=ready_line(numbers[0], settings, model_id),
        )
        state.lease.on_failed = server.fail
        guard, live = guard_interpreter(settings.hang_seconds), sign_of_life()

        def on_tick() -> None:
            guard()
            live()

        state.watchdog.on_tick = on_tick
        server.run(socks)
        if server.has_failed:
            end_process()
    # The app is part of reference cycles. Frozen, they and the engine would outlive the native
    # module.
    gc.unfreeze()
    return 0


class ReadyServer(DrainingServer):
    """A draining server that prints a line when it is ready."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        work: Work,
        readers: SlowReaders,
        drain_seconds: float,
        ready_line: str,
    ) -> None:
        super().__init__(config, work=work, readers=readers, drain_seconds=drain_seconds)
        self._ready_line = ready_line
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
        tell("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        tell("STOPPING=1")
        await super().shutdown(sockets)


class Leaving:
    """The signal handler while the model loads."""

    said = False

    def __call__(self, _signum: int, _frame: FrameType | None) -> NoReturn:
        self.said = True
        raise SystemExit(0)

    def check(self) -> None:
        """Exit if the exception was raised where Python drops it, as in a finalizer."""
        if self.said:
            raise SystemExit(0)


def load_app(settings: Settings, *, replica: str = "") -> "tuple[FastAPI, str]":
    """The app over the loaded models, and the name of the first one. `replica`: see Service.
    Raises CommandError.
    """
    from ..app import app_over
    from ..kept.files import KeptDirectoryError
    from .served_models import load_models

    models = load_models(settings)
    try:
        app = app_over(models, settings, replica=replica)
    except KeptDirectoryError as error:
        raise CommandError(f"--keep-streams-dir: {error}") from error
    return app, models[0].name


def ready_line(port: int, settings: Settings, model_id: str) -> str:
    """What is printed when requests are taken at `port`."""
    url = url_on_this_machine(settings.host, port)
    body = json.dumps({"model": model_id, "prompt": "Once upon a time", "stream": True})
    key = " -H 'authorization: Bearer …'" if settings.api_keys else ""
    return (
        f"{model_id} is ready at {url} (stop with Ctrl-C); try: "
        f"curl -N {url}/v1/completions{key} -H 'content-type: application/json' -d '{body}'"
    )
