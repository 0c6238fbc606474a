"""Kept streams in a directory: what a later server still knows of them, and goes on with."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until

STORY: dict[str, Any] = {
    "prompt": "Once upon a time", "max_tokens": 120, "seed": 11, "temperature": 0.9, "store": True,
    "background": True, "ignore_eos": True,
}  # fmt: skip
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "A story about a frog, please."}],
    "max_tokens": 120, "seed": 5, "store": True, "background": True, "ignore_eos": True,
}  # fmt: skip
# Each with the route, and what makes every token an event of its own or says more of it.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "tokens": ("/v1/completions", {**STORY, "stream": True, "logprobs": 3}),
    "chat": (
        "/v1/chat/completions",
        {**CHAT, "stream": True, "logprobs": True, "top_logprobs": 2, "n": 2},
    ),
    "usage": (
        "/v1/completions",
        {
            **STORY, "stream": True, "logprobs": 0, "echo": True, "include": ["stop", "seed"],
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
    ),
    "constraint": (
        "/v1/completions", {**STORY, "stream": True, "logprobs": 1, "guided_regex": "[a-z ]*"},
    ),
    "mirostat": ("/v1/completions", {**STORY, "stream": True, "logprobs": 1, "mirostat": 2}),
    "whole": ("/v1/completions", {**STORY, "logprobs": 1, "return_token_ids": True}),
}  # fmt: skip

Serve = Callable[[], Any]


@pytest.fixture
def serve(bundled_engine: Engine, tmp_path: Path) -> Serve:
    return lambda **options: live_server(
        bundled_engine, keep_streams_dir=tmp_path / "kept", **options
    )


def begun(server: LiveServer, path: str, body: dict[str, Any]) -> str:
    """The id of a stream that has begun in the background, whose client has left."""
    before = {each["id"] for each in server.get("/v1/streams").json["data"]}

    def fresh() -> list[str]:
        listed = server.get("/v1/streams").json["data"]
        return [each["id"] for each in listed if each["id"] not in before and each["events"]]

    with server.send(path, body):
        wait_until(fresh)
    return min(fresh())


def control(server: LiveServer, id_: str, action: str, **fields: Any) -> dict[str, Any]:
    answer = server.post(f"/v1/streams/{id_}/control", {"action": action, **fields})
    assert answer.status == 200, answer.body
    said: dict[str, Any] = answer.json
    return said


def shown(server: LiveServer, id_: str) -> dict[str, Any]:
    answer = server.get(f"/v1/streams/{id_}")
    assert answer.status == 200, answer.body
    stream: dict[str, Any] = answer.json
    return stream


def ended(server: LiveServer, id_: str) -> dict[str, Any]:
    assert server.get(f"/v1/streams/{id_}/events").status == 200  # to its end
    return shown(server, id_)


def told(server: LiveServer, id_: str) -> list[bytes]:
    """Its events, without what is another's in another stream: id, time, and what was done."""
    events = server.get(f"/v1/streams/{id_}/events").body
    events = re.sub(rb"(?m)^id: \d+\n", b"", events)
    events = re.sub(rb'"(id|created)": ?("[^"]*"|\d+)', b"", events)
    return [each for each in events.split(b"\n\n") if b'"control"' not in each]


def numbers(stream: dict[str, Any]) -> list[dict[str, Any]]:
    names = ("token_id", "logprob", "p_raw", "p_sampled", "rank", "entropy", "top_logprobs")
    return [{name: token[name] for name in names} for token in stream["tokens"]]


def body_of(shape: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    path, body = SHAPES[shape]
    return path, {**body, **fields}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_paused_stream_goes_on_after_a_restart_as_if_nothing_had_been(
    serve: Serve, shape: str
) -> None:
    path, body = SHAPES[shape]
    n = body.get("n", 1)
    with serve() as server:
        id_ = begun(server, path, body)
        said = control(server, id_, "pause")
        before = shown(server, id_)
        assert said["completion_tokens"] < body["max_tokens"], "it is in the middle"
        events = server.get(f"/v1/streams/{id_}").json["events"]
    with serve() as server:
        after = shown(server, id_)
        assert after == before
        assert (after["state"], after["reason"], after["events"]) == ("paused", None, events)
        assert control(server, id_, "resume")["event"] > events
        whole_id = after["answer_id"]
        streams = [id_] if n == 1 else [f"{whole_id}-{i}" for i in range(n)]
        own = [ended(server, each) for each in streams]
        server.post(path, body)
        twin_id = server.get("/v1/streams?limit=1").json["data"][0]["answer_id"]
        twins = [shown(server, twin_id if n == 1 else f"{twin_id}-{i}") for i in range(n)]
        assert [each["text"] for each in own] == [each["text"] for each in twins]
        assert [*map(numbers, own)] == [*map(numbers, twins)]
        assert told(server, whole_id) == told(server, twin_id)
        replays = [server.post(f"/v1/streams/{each}/replay", {}).json for each in streams]
        assert all(each["identical"] for each in replays)


def test_a_stream_that_runs_at_the_shutdown_is_paused_and_goes_on(serve: Serve) -> None:
    path, body = body_of("tokens", max_tokens=900)
    with serve() as server:
        id_ = begun(server, path, body)
        queued = [begun_in_queue(server, path, {**body, "seed": seed}) for seed in (1, 2)]
    with serve() as server:
        paused = [shown(server, each) for each in (id_, *queued)]
        assert [each["state"] for each in paused] == 3 * ["paused"]
        assert {each["reason"] for each in paused} == {"the server was shut down"}
        assert 0 < paused[0]["completion_tokens"] < 900
        assert [each["completion_tokens"] for each in paused[1:]] == [0, 0]
        for each in (queued[1], id_, queued[0]):
            control(server, each, "resume")
        assert shown(server, id_)["reason"] is None
        for each, seed in ((id_, 11), (queued[0], 1), (queued[1], 2)):
            own = ended(server, each)
            server.post(path, {**body, "seed": seed})
            twin_id = server.get("/v1/streams?limit=1").json["data"][0]["id"]
            assert numbers(own) == numbers(shown(server, twin_id))
            assert told(server, each) == told(server, twin_id)


def begun_in_queue(server: LiveServer, path: str, body: dict[str, Any]) -> str:
    """The id of a stream that waits for the engine, whose client has left."""
    n = len(server.get("/v1/streams?limit=100").json["data"])
    with server.send(path, body):
        wait_until(lambda: len(server.get("/v1/streams?limit=100").json["data"]) > n)
    stream: dict[str, Any] = server.get("/v1/streams?limit=1").json["data"][0]
    assert stream["state"] == "queued", "the one before it is long enough"
    return str(stream["id"])


def test_a_branch_that_has_not_begun_begins_after_the_restart(serve: Serve) -> None:
    path, body = body_of("tokens", max_tokens=30)
    asked = {"at": 7, "text": " dragon", "stream": True}
    with serve() as server:
        parent = ended(server, begun(server, path, body))["id"]
        twin = server.post(f"/v1/streams/{parent}/branch", asked)
        assert twin.status == 200
        twin_id = shown(server, parent)["children"][-1]
        begun(server, path, {**body, "max_tokens": 900, "n": 4})  # runs for long enough
        id_ = begun_in_queue(server, f"/v1/streams/{parent}/branch", asked)
    with serve() as server:
        assert shown(server, parent)["children"] == [twin_id, id_]
        assert shown(server, id_)["parent"] == {"id": parent, "at": 7}
        control(server, id_, "resume")
        own, other = ended(server, id_), shown(server, twin_id)
        assert own["text"] == other["text"]
        assert numbers(own) == numbers(other)
        assert told(server, id_) == told(server, twin_id)


def test_what_was_done_with_a_stream_holds_after_the_restart(serve: Serve) -> None:
    path, body = body_of("tokens")

    def steer(server: LiveServer, id_: str, part: int) -> None:
        if part == 0:
            n = control(server, id_, "pause")["completion_tokens"]
            control(server, id_, "rewind", tokens=n)
            control(server, id_, "inject", text=" The king said:")
        else:
            control(server, id_, "set", settings={"temperature": 1.3})
            control(server, id_, "ban", strings=["the "])
            control(server, id_, "extend", max_tokens=40)
            control(server, id_, "resume")

    with serve() as server:
        id_ = begun(server, path, body)
        steer(server, id_, 0)
    with serve() as server:
        assert shown(server, id_)["state"] == "paused"
        steer(server, id_, 1)
        own = ended(server, id_)
        twin_id = begun(server, path, body)
        steer(server, twin_id, 0)
        steer(server, twin_id, 1)
        twin = ended(server, twin_id)
        assert own["text"] == twin["text"]
        assert own["text"].startswith(" The king said:")
        assert numbers(own) == numbers(twin)
        assert server.post(f"/v1/streams/{id_}/replay", {}).json["identical"]


def test_every_route_knows_a_stream_from_before_the_restart(serve: Serve) -> None:
    path, body = body_of("tokens", max_tokens=20)
    with serve() as server:
        id_ = ended(server, begun(server, path, body))["id"]
        paths = {
            "get": f"/v1/streams/{id_}", "events": f"/v1/streams/{id_}/events?starting_after=7",
        }  # fmt: skip
        before = {name: server.get(each) for name, each in paths.items()}
        looks = {
            "peek": {"at": 5, "top": 3, "tokens": 4}, "replay": {},
            "branch": {"at": 5, "text": " dragon", "stream": False, "logprobs": 2},
        }  # fmt: skip
        first = {name: server.post(f"/v1/streams/{id_}/{name}", looks[name]).json for name in looks}
    with serve() as server:
        assert {**server.get(paths["get"]).json, "children": []} == before["get"].json
        assert server.get(paths["events"]).body == before["events"].body
        assert server.get("/v1/streams?order=asc").json["data"][0]["id"] == id_
        again = {name: server.post(f"/v1/streams/{id_}/{name}", looks[name]).json for name in looks}
        assert again["peek"] == first["peek"]
        assert again["replay"] == first["replay"]
        assert again["replay"]["identical"]
        assert again["branch"]["choices"] == first["branch"]["choices"]
        refused = server.post(f"/v1/streams/{id_}/control", {"action": "pause"})
        assert (refused.status, refused.error["code"]) == (409, "wrong_state")
        assert server.request("DELETE", f"/v1/streams/{id_}").status == 200
    with serve() as server:
        assert server.get(f"/v1/streams/{id_}").status == 404
        assert len(server.get("/v1/streams").json["data"]) == 2, "its branches are others"


def test_a_paused_stream_is_branched_peeked_and_deleted_before_it_goes_on(serve: Serve) -> None:
    path, body = body_of("tokens")
    with serve() as server:
        id_ = begun(server, path, body)
        n = control(server, id_, "pause")["completion_tokens"]
        peeked = server.post(f"/v1/streams/{id_}/peek", {"top": 2}).json
    with serve() as server:
        assert server.post(f"/v1/streams/{id_}/peek", {"top": 2}).json == peeked
        branch = server.post(f"/v1/streams/{id_}/branch", {"at": n, "max_tokens": n + 3})
        assert branch.json["branch"] == {"id": id_, "at": n}
        refused = server.post(f"/v1/streams/{id_}/replay", {})
        assert (refused.status, refused.error["code"]) == (409, "wrong_state")
        with server.connect() as reader:
            reader.sendall(
                f"GET /v1/streams/{id_}/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
            )
            reader.recv(1)
            assert server.request("DELETE", f"/v1/streams/{id_}").status == 200
            rest = b""
            while not rest.endswith(b"0\r\n\r\n"):
                rest += reader.recv(1 << 16)
            assert b"the stream was deleted" in rest, "its readers are told"


def test_stored_chats_are_there_after_the_restart(serve: Serve) -> None:
    body = {**CHAT, "max_tokens": 8, "metadata": {"topic": "frogs"}}
    with serve() as server:
        told_ = server.post("/v1/chat/completions", body).json
    path = f"/v1/chat/completions/{told_['id']}"
    with serve() as server:
        assert server.get(path).json == {**told_, "metadata": {"topic": "frogs"}}
        found = server.get("/v1/chat/completions?metadata[topic]=frogs").json["data"]
        assert [each["id"] for each in found] == [told_["id"]]
        [message] = server.get(f"{path}/messages").json["data"]
        assert message["content"] == "A story about a frog, please."
        assert server.post(path, {"metadata": {"topic": "toads"}}).status == 200
    with serve() as server:
        assert server.get(path).json["metadata"] == {"topic": "toads"}
        assert server.request("DELETE", path).status == 200
    with serve() as server:
        assert server.get(path).status == 404


def test_a_client_that_hung_up_is_named_in_the_refusal(serve: Serve) -> None:
    path, body = body_of("tokens", background=False, max_tokens=300)
    with serve() as server:
        id_ = begun(server, path, body)
        assert "hung up" in ended(server, id_)["reason"]
        refused = server.post(f"/v1/streams/{id_}/control", {"action": "pause"})
        assert (refused.status, refused.error["code"]) == (409, "wrong_state")
        for words in ("hung up", "background: true", "branch it"):
            assert words in refused.error["message"]
    with serve() as server:
        again = server.post(f"/v1/streams/{id_}/control", {"action": "pause"})
        assert again.body == refused.body
        n = shown(server, id_)["completion_tokens"]
        branch = server.post(f"/v1/streams/{id_}/branch", {"max_tokens": n + 5})
        assert branch.json["usage"]["completion_tokens"] == n + 5
