"""Kept streams in a directory: what a later server still knows of them, and goes on with."""

import json
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
    wait_until(lambda: shown(server, id_)["state"] == "ended")
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
        twins = [
            shown(server, twin_id if n == 1 else f"{twin_id}-{i}") for i in range(n)
        ]
        assert [each["text"] for each in own] == [each["text"] for each in twins]
        assert [*map(numbers, own)] == [*map(numbers, twins)]
        assert told(server, whole_id) == told(server, twin_id)
        replays = [server.post(f"/v1/streams/{each}/replay", {}).json for each in streams]
        assert all(each["identical"] for each in replays)
