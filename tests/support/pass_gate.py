"""Holds the passes of a model, so that a test meets a stream at a certain token."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from typing import Any

import pytest

from engine import Engine
from tests.support.live_server import LiveServer, wait_until


class PassGate:
    """Around the passes of a model. It is open until it is closed."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits = Semaphore(0)
        self._is_closed = False
        self.n_came = 0
        decode = engine.model.decode

        def held(*arguments: Any, **options: Any) -> Any:
            self.n_came += 1
            if self._is_closed:
                assert self._permits.acquire(timeout=60)
            return decode(*arguments, **options)

        monkeypatch.setattr(engine.model, "decode", held)

    def close(self) -> None:
        self._is_closed = True
        self.n_came = 0

    def wait_for(self, n_passes: int) -> None:
        """Until so many have come since it was closed."""
        wait_until(lambda: self.n_came == n_passes)

    def let_one_pass(self) -> None:
        self._permits.release()

    def open(self) -> None:
        self._is_closed = False
        self._permits.release()


def paused(server: LiveServer, gate: PassGate, body: Mapping[str, Any]) -> str:
    """The id of a completion that waits behind its first token."""
    gate.close()
    said = {**body, "store": True, "background": True, "stream": True}
    with server.send("/v1/completions", said), ThreadPoolExecutor(1) as pool:
        gate.wait_for(1)
        id_: str = server.get("/v1/streams?limit=1").json["data"][0]["id"]
        answer = pool.submit(server.post, f"/v1/streams/{id_}/control", {"action": "pause"})
        open_when_asked(server, gate, id_)
        assert answer.result().status == 200
    return id_


def open_when_asked(server: LiveServer, gate: PassGate, id_: str) -> None:
    """Let the passes go on when something is to be done behind the next token."""
    running = server.app.state.kept.stream("", id_)[0].running
    wait_until(lambda: running.n_waiting)
    gate.open()
