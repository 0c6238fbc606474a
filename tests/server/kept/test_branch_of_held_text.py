"""A branch has all text that its parent has shown, also that of a token that is only begun: its end
may be the beginning of a stop string, so it waits, and what is before it does not.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until

STOP = "e w"
BODY = {
    "prompt": "Once upon a time", "temperature": 0.0, "max_tokens": 60, "ignore_eos": True,
    "logprobs": 2, "stop": [STOP], "store": True, "background": True, "stream": True,
}  # fmt: skip


class Gate:
    """Around the passes of a model."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = Event()
        self.has_come = Event()
        self.is_open.set()
        decode = engine.model.decode

        def held(*arguments: Any) -> Any:
            self.has_come.set()
            assert self.is_open.wait(60)
            return decode(*arguments)

        monkeypatch.setattr(engine.model, "decode", held)

    def close(self) -> None:
        self.is_open.clear()
        self.has_come.clear()


@pytest.fixture
def gate(tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(tiny_engine, monkeypatch)
    yield gate
    gate.is_open.set()


def divided_token(engine: Engine) -> int:
    """One whose last character alone may begin the stop string."""
    tokenizer = engine.tokenizer
    texts = ((id_, tokenizer.token_bytes(id_)) for id_ in range(engine.config.vocab_size))
    return next(id_ for id_, text in texts if text.isalpha() and text[1:] == STOP[:1].encode())


def paused(server: LiveServer, gate: Gate, pool: ThreadPoolExecutor) -> str:
    """The id of a stream that waits behind its first token."""
    gate.close()
    with server.send("/v1/completions", BODY):
        assert gate.has_come.wait(60)
        (listed,) = server.get("/v1/streams").json["data"]
        id_: str = listed["id"]
        answer = pool.submit(server.post, f"/v1/streams/{id_}/control", {"action": "pause"})
        open_when_asked(server, gate, id_)
        assert answer.result().status == 200
    return id_


def open_when_asked(server: LiveServer, gate: Gate, id_: str) -> None:
    """Let the pass go on when something is to be done behind its token."""
    running = server.app.state.kept.stream("", id_)[0].running
    wait_until(lambda: running.n_waiting)
    gate.is_open.set()


def ended_text(server: LiveServer, id_: str) -> str:
    path = f"/v1/streams/{id_}"
    server.post(f"{path}/control", {"action": "resume"})
    wait_until(lambda: server.get(path).json["state"] == "ended")
    text: str = server.get(path).json["text"]
    return text


def branched_text(server: LiveServer, id_: str) -> str:
    answer = server.post(f"/v1/streams/{id_}/branch", {})
    assert answer.status == 200, answer.body
    text: str = answer.json["choices"][0]["text"]
    return text


@pytest.mark.parametrize("state", ["running", "paused", "put down"])
def test_a_branch_has_what_was_shown_of_a_token(
    tiny_engine: Engine, gate: Gate, state: str, tmp_path: Path
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        live_server(tiny_engine, keep_streams_dir=tmp_path) as server,
    ):
        id_ = paused(server, gate, pool)
        control = partial(server.post, f"/v1/streams/{id_}/control")
        force = {"action": "force", "token_id": divided_token(tiny_engine)}
        assert control(force).status == 200
        gate.close()
        assert control({"action": "resume"}).status == 200
        assert gate.has_come.wait(60)
        # Asked while the pass of the divided token runs, it is done right behind that token.
        if state == "running":
            branched = pool.submit(branched_text, server, id_)
            open_when_asked(server, gate, id_)
            assert branched.result() == ended_text(server, id_)
            return
        stopped = pool.submit(control, {"action": "pause"})
        open_when_asked(server, gate, id_)
        assert stopped.result().status == 200
        if state == "paused":
            assert branched_text(server, id_) == ended_text(server, id_)
            return
    with live_server(tiny_engine, keep_streams_dir=tmp_path) as server:
        assert branched_text(server, id_) == ended_text(server, id_)
