"""A branch has all text that its parent has shown, also that of a token that is only begun: its end
may be the beginning of a stop string, so it waits, and what is before it does not.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.pass_gate import PassGate, open_when_asked, paused

STOP = "e w"
BODY = {
    "prompt": "Once upon a time", "temperature": 0.0, "max_tokens": 60, "ignore_eos": True,
    "logprobs": 2, "stop": [STOP], "store": True, "background": True, "stream": True,
}  # fmt: skip


@pytest.fixture
def gate(tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[PassGate]:
    gate = PassGate(tiny_engine, monkeypatch)
    yield gate
    gate.open()


def divided_token(engine: Engine) -> int:
    """One whose last character alone may begin the stop string."""
    tokenizer = engine.tokenizer
    texts = ((id_, tokenizer.token_bytes(id_)) for id_ in range(engine.config.vocab_size))
    return next(id_ for id_, text in texts if text.isalpha() and text[1:] == STOP[:1].encode())


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
    tiny_engine: Engine, gate: PassGate, state: str, tmp_path: Path
) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        live_server(tiny_engine, keep_streams_dir=tmp_path) as server,
    ):
        id_ = paused(server, gate, BODY)
        control = partial(server.post, f"/v1/streams/{id_}/control")
        force = {"action": "force", "token_id": divided_token(tiny_engine)}
        assert control(force).status == 200
        gate.close()
        assert control({"action": "resume"}).status == 200
        gate.wait_for(1)
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


def test_a_branch_of_a_stream_that_was_cut_off_has_it_too(
    tiny_engine: Engine, gate: PassGate
) -> None:
    """The client leaves during the pass of the divided token."""
    force = {"action": "force", "token_id": divided_token(tiny_engine)}
    with ThreadPoolExecutor(1) as pool, live_server(tiny_engine) as server:
        whole = paused(server, gate, BODY)
        assert server.post(f"/v1/streams/{whole}/control", force).status == 200
        wanted = ended_text(server, whole)
        gate.close()
        with server.send("/v1/completions", {**BODY, "background": False}):
            gate.wait_for(1)
            running = server.running
            id_ = server.get("/v1/streams").json["data"][0]["id"]
            assert id_ != whole
            forced = pool.submit(server.post, f"/v1/streams/{id_}/control", force)
            kept = server.app.state.kept.stream("", id_)[0]
            wait_until(lambda: kept.running.n_waiting)
            gate.let_one_pass()
            assert forced.result().status == 200
            gate.wait_for(2)
        assert running is not None
        wait_until(running.abort.is_set)
        gate.open()
        wait_until(lambda: server.get(f"/v1/streams/{id_}").json["state"] == "ended")
        assert branched_text(server, id_) == wanted
