"""SillyTavern's chats: what its server sends is replayed, and what its page reads of the answers is
checked, feature by feature.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_process import API_KEY
from tests.support.event_stream import parse_event_stream
from tests.support.known_replies import HELLO, known_server
from tests.support.live_server import Answer, LiveServer, wait_until

RECORDED = json.loads(
    (Path(__file__).parents[2] / "clients" / "requests" / "sillytavern.json").read_text()
)
PATH, CHAT = RECORDED["chat"]
AUTHORIZED = {"authorization": f"Bearer {API_KEY}"}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with known_server() as server:
        yield server


def said(text: str, **more: Any) -> dict[str, Any]:
    system, user = CHAT["messages"]
    return {**CHAT, "messages": [system, {**user, "content": text}], **more}


def sent(server: LiveServer, text: str, **more: Any) -> Answer:
    return server.post(PATH, said(text, **more), **AUTHORIZED)


def choices(server: LiveServer, text: str, **more: Any) -> list[Any]:
    """The choices of the events, as the page goes through them."""
    answer = sent(server, text, **more)
    assert answer.status == 200, answer.body
    return [chunk["choices"][0] for chunk in parse_event_stream(answer.body).chunks]


def test_a_reply_streams_with_its_probabilities(server: LiveServer) -> None:
    found = choices(server, "hello")
    assert "".join(choice["delta"].get("content") or "" for choice in found) == HELLO
    tokens = [
        entry for choice in found if choice["logprobs"] for entry in choice["logprobs"]["content"]
    ]
    assert "".join(entry["token"] for entry in tokens) == HELLO
    assert all(len(entry["top_logprobs"]) == 5 for entry in tokens)


def test_a_call_is_put_together_by_its_index(server: LiveServer) -> None:
    call: dict[str, Any] = {}
    for choice in choices(server, "call", **RECORDED["chat_tools"]):
        for delta in choice["delta"].get("tool_calls", ()):
            assert delta["index"] == 0
            merge(call, delta)
    assert call["type"] == "function"
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}


def merge(target: dict[str, Any], delta: dict[str, Any]) -> None:
    """Strings are joined, as the page does it: what comes twice would be there twice."""
    for key, value in delta.items():
        if isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        elif isinstance(value, str):
            target[key] = target.get(key, "") + value


def test_reasoning_is_read_apart_from_the_reply(server: LiveServer) -> None:
    found = choices(server, "think")
    read = {
        key: "".join(choice["delta"].get(key) or "" for choice in found)
        for key in ("reasoning_content", "content")
    }
    assert read == {"reasoning_content": "hm", "content": "noon"}


def test_a_quiet_reply_follows_a_schema(server: LiveServer) -> None:
    answer = sent(server, "size", **RECORDED["chat_schema"])
    reply = json.loads(answer.json["choices"][0]["message"]["content"])
    assert set(reply) == {"size"}
    assert reply["size"] in range(1, 10)


def test_a_reply_that_is_stopped_ends_the_work(server: LiveServer) -> None:
    """Its server closes the connection when the page does."""
    with server.connect() as sock:
        body = json.dumps(said("long", max_tokens=2000)).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {API_KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body)
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert server.running is not None
    wait_until(lambda: server.running is None, seconds=5)


def test_a_refusal_is_read_of_the_body(server: LiveServer) -> None:
    answer = sent(server, "x", model="none")
    assert answer.status == 404
    assert "does not exist" in answer.json["error"]["message"]
