"""Streams that are steered while they run, over real sockets."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine import DEFAULT_MODEL, Engine
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.fault_script import Hang
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

BODY: dict[str, Any] = {
    "prompt": "Once upon a time", "max_tokens": 60, "store": True, "stream": True, "seed": 5,
    "ignore_eos": True,
}  # fmt: skip


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


class Steered:
    """A stream of the fake engine that waits before its next token."""

    def __init__(self, server: LiveServer, fake: FakeEngine, **fields: Any) -> None:
        fake.model.decode_gate.clear()
        self._server, self._fake = server, fake
        self._sock = server.send("/v1/completions", {**BODY, **fields})
        wait_until(lambda: fake.model.held_in_decode)
        [stream] = server.get("/v1/streams?limit=1").json["data"]
        self.path = f"/v1/streams/{stream['id']}"

    def control(self, action: str, **fields: Any) -> Any:
        """Made while a token is computed: it takes effect before the next one."""
        answers: list[Any] = []
        asked = {"action": action, **fields}
        thread = threading.Thread(
            target=lambda: answers.append(self._server.post(f"{self.path}/control", asked))
        )
        thread.start()
        if not self._fake.model.decode_gate.is_set():
            threading.Event().wait(0.1)  # until it has been queued
            self._fake.model.decode_gate.set()
        thread.join(20)
        [answer] = answers
        return answer

    def hang_up(self) -> None:
        self._sock.close()

    def end(self) -> bytes:
        self._fake.model.decode_gate.set()
        with self._sock:
            return read_answer(self._sock).body

    @property
    def shown(self) -> dict[str, Any]:
        stream: dict[str, Any] = self._server.get(self.path).json
        return stream


def controls(events: bytes) -> list[dict[str, Any]]:
    chunks = [json.loads(e.removeprefix(b"data: ")) for e in events.split(b"\n\n")[:-2]]
    return [chunk["control"] for chunk in chunks if "control" in chunk]


def test_a_control_takes_effect_before_the_next_token(server: LiveServer, fake: FakeEngine) -> None:
    stream = Steered(server, fake)
    answer = stream.control("force", token_id=ord("!")).json
    events = stream.end()
    assert answer["completion_tokens"] == 1, "the token that was being computed"
    assert stream.shown["text"][1] == "!"
    [said] = controls(events)
    assert (said["action"], said["token_id"], said["completion_tokens"]) == ("force", ord("!"), 1)
    frames = events.split(b"\n\n")
    assert b'"control"' in frames[answer["event"] - 1], "its number is that of its event"


def test_a_paused_stream_gives_the_engine_away_and_goes_on_as_if_nothing_had_been(
    server: LiveServer, fake: FakeEngine
) -> None:
    stream = Steered(server, fake)
    assert stream.control("pause").json["state"] == "paused"
    wait_until(lambda: server.running is None)
    assert stream.shown["state"] == "paused"
    other = server.post("/v1/completions", {"prompt": "Another", "max_tokens": 5}).json
    assert other["choices"][0]["text"] == fake_reply("Another", 5)
    assert stream.control("pause").status == 409
    assert stream.control("resume").status == 200
    stream.end()
    assert stream.shown["text"] == fake_reply(BODY["prompt"], 60)
    assert stream.control("resume").status == 409


def test_a_paused_stream_is_changed_before_it_goes_on(server: LiveServer, fake: FakeEngine) -> None:
    stream = Steered(server, fake)
    stream.control("pause")
    assert stream.control("inject", text="abc").status == 200
    assert stream.control("extend", max_tokens=10).status == 200
    assert stream.shown["state"] == "paused"
    stream.control("resume")
    events = stream.end()
    assert stream.shown["text"][1:4] == "abc"
    assert stream.shown["completion_tokens"] == 10
    said = [each["action"] for each in controls(events)]
    assert said == ["pause", "inject", "extend", "resume"]


def test_rewinding_takes_text_back_and_says_how_much_is_left(
    server: LiveServer, fake: FakeEngine
) -> None:
    stream = Steered(server, fake)
    stream.control("pause")
    stream.control("inject", text="wrong")
    stream.control("resume")
    wait_until(lambda: stream.shown["completion_tokens"] > 6 or stream.shown["state"] == "ended")
    stream.end()
    # It ran to its end in the meantime: another one is rewound while it is paused.
    other = Steered(server, fake)
    other.control("pause")
    first = other.shown["text"]
    answer = other.control("rewind", tokens=1)
    assert answer.json["completion_tokens"] == 0
    too_many = other.control("rewind", tokens=99)
    assert (too_many.status, too_many.error["param"]) == (400, "tokens")
    other.control("inject", text="ok")
    other.control("resume")
    events = other.end()
    [rewound] = [each for each in controls(events) if each["action"] == "rewind"]
    assert rewound["text_characters"] == 0
    assert first
    assert other.shown["text"].startswith("ok")
    assert other.shown["completion_tokens"] == 60


def test_stopping_ends_it_with_what_there_is(server: LiveServer, fake: FakeEngine) -> None:
    stream = Steered(server, fake, include=["stop"])
    assert stream.control("stop").status == 200
    events = stream.end()
    last = json.loads(events.split(b"\n\n")[-3].removeprefix(b"data: "))["choices"][0]
    assert (last["finish_reason"], last["stop_detail"]["kind"]) == ("stop", "control")
    assert events.endswith(b"data: [DONE]\n\n")
    assert stream.shown["finish"] == "control"
    assert stream.shown["text"] == fake_reply(BODY["prompt"], 1)


def test_nothing_is_done_with_a_stopped_stream(server: LiveServer, fake: FakeEngine) -> None:
    """Not in the same gap between two tokens, either: it would be paused and never end."""
    stream = Steered(server, fake)
    answers: dict[str, int] = {}

    def control(action: str) -> None:
        answers[action] = server.post(f"{stream.path}/control", {"action": action}).status

    threads = [threading.Thread(target=control, args=(action,)) for action in ("stop", "pause")]
    for thread in threads:
        thread.start()
        threading.Event().wait(0.1)  # until it has been queued
    fake.model.decode_gate.set()
    for thread in threads:
        thread.join(20)
    assert answers == {"stop": 200, "pause": 409}
    assert stream.end().endswith(b"data: [DONE]\n\n")
    assert stream.shown["finish"] == "control"


def test_a_paused_stream_can_be_stopped_deleted_and_left(
    server: LiveServer, fake: FakeEngine
) -> None:
    stopped = Steered(server, fake)
    stopped.control("pause")
    stopped.control("stop")
    assert stopped.end().endswith(b"data: [DONE]\n\n")
    deleted = Steered(server, fake)
    deleted.control("pause")
    assert server.request("DELETE", deleted.path).status == 200
    assert b"the stream was deleted" in deleted.end()
    assert server.running is None


@pytest.mark.parametrize("leave", ["delete", "hang up"])
def test_a_stream_that_ends_while_it_gives_the_engine_away_does_not_lie_there_for_ever(
    server: LiveServer, fake: FakeEngine, leave: str
) -> None:
    """Its pause has been answered, and the engine thread is still inside."""
    stream = Steered(server, fake)
    inside = Hang()
    fake.faults["pause", 0] = inside
    assert stream.control("pause").json["state"] == "paused"
    assert inside.begun.wait(20)
    ticket = server.running
    assert ticket is not None
    if leave == "delete":
        assert server.request("DELETE", stream.path).status == 200
        inside.release()
        assert b"the stream was deleted" in stream.end()
    else:
        stream.hang_up()
        wait_until(lambda: ticket.cancelled_at)
        inside.release()
        wait_until(lambda: stream.shown["state"] == "ended")
    wait_until(lambda: server.running is None)


def test_controls_in_the_wrong_state_or_without_what_they_need(
    server: LiveServer, fake: FakeEngine
) -> None:
    stream = Steered(server, fake)
    for body, param in (
        ({"action": "rewind"}, "tokens"), ({"action": "inject"}, "text"),
        ({"action": "force"}, "token_id"), ({"action": "ban"}, "strings"),
        ({"action": "extend", "max_tokens": 10**6}, "max_tokens"),
        ({"action": "set", "settings": {"stop": "x"}}, "settings.stop"),
        ({"action": "jump"}, "action"), ({}, "action"),
        ({"action": "end_reasoning"}, "action"),
    ):  # fmt: skip
        answer = server.post(f"{stream.path}/control", body)
        assert (answer.status, answer.error["param"]) == (400, param), answer.body
    stream.end()
    ended = stream.control("pause")
    assert (ended.status, ended.error["code"]) == (409, "wrong_state")
    unknown = server.post("/v1/streams/cmpl-0/control", {"action": "pause"})
    assert unknown.status == 404


def test_a_choice_that_has_ended_is_branched_and_replayed_while_the_next_one_runs(
    server: LiveServer, fake: FakeEngine
) -> None:
    fake.model.token_time = 0.005
    with server.send("/v1/completions", {**BODY, "n": 2, "max_tokens": 400}) as sock:
        wait_until(lambda: server.get("/v1/streams").json["data"])
        id_ = server.get("/v1/streams").json["data"][0]["answer_id"]
        first, second = f"/v1/streams/{id_}-0", f"/v1/streams/{id_}-1"
        for path, action in ((first, "stop"), (second, "pause")):
            wait_until(lambda path=path: server.get(path).json["state"] == "running")  # type: ignore[misc]
            assert server.post(f"{path}/control", {"action": action}).status == 200
        text = server.get(first).json["text"]
        assert server.post(f"{first}/replay", {}).json["identical"]
        branch = server.post(f"{first}/branch", {"max_tokens": len(text) + 2}).json
        assert branch["choices"][0]["text"] == fake_reply(BODY["prompt"], len(text) + 2)
        [way] = server.post(f"{first}/peek", {"top": 1, "tokens": 2}).json["alternatives"]
        assert branch["choices"][0]["text"] == text + way["text"]
        fake.model.token_time = 0.0
        server.post(f"{second}/control", {"action": "resume"})
        read_answer(sock)


def test_a_paused_stream_that_was_left_can_still_be_branched(
    server: LiveServer, fake: FakeEngine
) -> None:
    stream = Steered(server, fake)
    stream.control("pause")
    wait_until(lambda: server.running is None)
    stream.hang_up()
    wait_until(lambda: stream.shown["state"] == "ended")
    branch = server.post(f"{stream.path}/branch", {"max_tokens": 9}).json
    assert branch["choices"][0]["text"] == fake_reply(BODY["prompt"], 9)
    assert branch["branch"]["at"] == stream.shown["completion_tokens"] == 1


def test_a_setting_can_be_set_back_to_what_the_request_said(
    server: LiveServer, fake: FakeEngine
) -> None:
    stream = Steered(server, fake, temperature=0.5)
    stream.control("pause")
    for temperature in (1.5, 0.5):
        stream.control("set", settings={"temperature": temperature})
    stream.control("ban", strings=["zz"])
    stream.control("resume")
    stream.end()
    proof = server.post(f"{stream.path}/replay", {}).json["proof"]
    assert proof["settings"]["temperature"] == 0.5
    hot = server.post(f"{stream.path}/branch", {"at": 1, "temperature": 0.5}).json["id"]
    proof = server.post(f"/v1/streams/{hot}/replay", {}).json["proof"]
    assert proof["settings"]["temperature"] == 0.5


def test_llama_servers_path_does_the_same(server: LiveServer, fake: FakeEngine) -> None:
    fake.writes(reasoning=True)
    fake.model.decode_gate.clear()
    body = {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 30, "store": True,
        "stream": True, "ignore_eos": True,
    }  # fmt: skip
    sock = server.send("/v1/chat/completions", body)
    wait_until(lambda: fake.model.held_in_decode)
    [stream] = server.get("/v1/streams").json["data"]
    answers: list[Any] = []
    asked = {"id": stream["id"], "action": "reasoning_end"}
    thread = threading.Thread(
        target=lambda: answers.append(server.post("/v1/chat/completions/control", asked))
    )
    thread.start()
    threading.Event().wait(0.1)
    fake.model.decode_gate.set()
    thread.join(20)
    with sock:
        read_answer(sock)
    assert answers[0].status == 200, answers[0].body
    assert "</think>" in server.get(f"/v1/streams/{stream['id']}").json["text"]
    without = server.post("/v1/chat/completions/control", {"action": "reasoning_end"})
    assert (without.status, without.error["param"]) == (400, "id")


@pytest.mark.parametrize("kv_cache", ["auto", "8bit"])
def test_the_same_controls_at_the_same_tokens_give_the_same_text(
    bundled_engine: Engine, kv_cache: str
) -> None:
    """Through pauses, other requests, changed settings and bans, with each format of keys and
    values; and a replay repeats it.
    """

    def run(server: LiveServer, *, disturbed: bool) -> tuple[str, str]:
        # Paused before its first token: then the number of tokens at each control is known.
        blocker = server.send("/v1/completions", {**BODY, "max_tokens": 300, "store": False})
        sock = server.send("/v1/completions", {**BODY, "max_tokens": 20})
        wait_until(lambda: server.get("/v1/streams?limit=1").json["data"])
        [stream] = server.get("/v1/streams?limit=1").json["data"]
        path = f"/v1/streams/{stream['id']}"
        thread = threading.Thread(target=server.post, args=(f"{path}/control", {"action": "pause"}))
        thread.start()
        with blocker:
            read_answer(blocker)
        thread.join(20)
        assert server.get(path).json["completion_tokens"] == 0
        steps: list[dict[str, Any]] = [
            {"action": "inject", "text": " The king said:"},
            {"action": "set", "settings": {"temperature": 1.5}},
            {"action": "ban", "strings": ["the "]},
            {"action": "extend", "max_tokens": 50},
        ]
        for step in steps:
            answer = server.post(f"{path}/control", step)
            assert answer.status == 200, answer.body
            if disturbed:
                server.post("/v1/completions", {"prompt": "Something else", "max_tokens": 9})
        server.post(f"{path}/control", {"action": "resume"})
        with sock:
            read_answer(sock)
        return server.get(path).json["text"], path

    def rewound(server: LiveServer) -> None:
        """Taken back and generated again, it is the same, whenever that was."""
        body = {**BODY, "max_tokens": 200}
        whole = server.post("/v1/completions", {**body, "stream": False}).json
        with server.send("/v1/completions", body) as sock:
            wait_until(
                lambda: server.get("/v1/streams?limit=1").json["data"][0]["id"] != whole["id"]
            )
            [stream] = server.get("/v1/streams?limit=1").json["data"]
            path = f"/v1/streams/{stream['id']}"
            wait_until(lambda: server.get(path).json["completion_tokens"] > 3)
            for body in (
                {"action": "pause"},
                {"action": "rewind", "tokens": 3},
                {"action": "resume"},
            ):
                assert server.post(f"{path}/control", body).status == 200
            read_answer(sock)
        assert server.get(path).json["text"] == whole["choices"][0]["text"]
        assert server.post(f"{path}/replay", {}).json["identical"]

    engine = bundled_engine
    if kv_cache != "auto":
        engine = Engine.load(DEFAULT_MODEL, device="cpu", kv_cache=kv_cache)
    with live_server(engine) as server:
        one, _ = run(server, disturbed=False)
        other, path = run(server, disturbed=True)
        assert one == other
        assert one.startswith(" The king said:")
        replay = server.post(f"{path}/replay", {}).json
        assert replay["identical"], replay["first_difference"]
        rewound(server)
