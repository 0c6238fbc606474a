"""Ollama's official Python client against a live server, and its wire where that is silent."""

import json
from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
HELLO: Any = [{"role": "user", "content": "hello"}]
GREEDY: Any = {"temperature": 0, "num_predict": 16}


def weather(city: str) -> str:
    """The weather of a city.

    Args:
      city: Its name.
    """
    return f"rain in {city}"


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=2048)


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def bundled_server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def bundled(bundled_server: LiveServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=bundled_server.url) as client:
        yield client


def test_streamed_and_whole_chats_agree(bundled: ollama.Client, bundled_server: LiveServer) -> None:
    request: Any = {"model": "soliton-default:latest", "messages": HELLO, "options": GREEDY}
    whole = bundled.chat(**request)
    parts = list(bundled.chat(**request, stream=True))
    assert whole.message.content
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    for answer in (whole, parts[-1]):
        assert answer.done_reason == "length"
        assert answer.eval_count == 16
        assert (answer.eval_duration or 0) > 0
    said = bundled_server.post(
        "/v1/chat/completions", {"messages": HELLO, "temperature": 0, "max_tokens": 16}
    ).json
    assert said["choices"][0]["message"]["content"] == whole.message.content
    assert said["usage"]["prompt_tokens"] == whole.prompt_eval_count


def test_a_prompt_is_a_conversation_of_one_turn_unless_it_is_raw(
    bundled: ollama.Client, bundled_server: LiveServer
) -> None:
    request: Any = {"model": "soliton-default", "prompt": "hello", "options": GREEDY}
    chat = bundled.chat(model="soliton-default", messages=HELLO, options=GREEDY)
    assert bundled.generate(**request).response == chat.message.content
    streamed = "".join(part.response or "" for part in bundled.generate(**request, stream=True))
    assert streamed == chat.message.content
    text = bundled_server.post(
        "/v1/completions", {"prompt": "hello", "temperature": 0, "max_tokens": 16}
    ).json["choices"][0]["text"]
    assert bundled.generate(**request, raw=True).response == text


def test_the_text_follows_a_schema(bundled: ollama.Client) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["size"],
        "additionalProperties": False,
    }
    answer = bundled.chat(model="soliton-default", messages=HELLO, format=schema)
    assert set(json.loads(answer.message.content or "")) == {"size"}


def test_a_tool_is_called_and_answered(fake: FakeEngine, client: ollama.Client) -> None:
    fake.model.script = f"Well.\n{CALL}\n{CALL}".encode()
    request: Any = {"model": "fake", "messages": HELLO, "tools": [weather]}
    whole = client.chat(**request)
    parts = list(client.chat(**request, stream=True))
    streamed = [call for part in parts for call in part.message.tool_calls or ()]
    calls = list(whole.message.tool_calls or ())
    for found in (calls, streamed):
        assert [call.function.name for call in found] == ["weather", "weather"]
        assert [call.function.arguments for call in found] == [{"city": "Oslo"}] * 2
    assert whole.message.content == "Well."
    results = [
        {"role": "tool", "tool_name": call.function.name, "content": weather("Oslo")}
        for call in calls
    ]
    client.chat(
        model="fake", messages=[*HELLO, whole.message, *results], options={"num_predict": 1}
    )
    turns = fake.rendered["messages"]
    asked = [call["id"] for call in turns[1]["tool_calls"]]
    assert [turn["tool_call_id"] for turn in turns[2:]] == asked
    assert len(set(asked)) == 2


def test_thinking_has_a_field_of_its_own(fake: FakeEngine, client: ollama.Client) -> None:
    fake.writes(reasoning=True)
    fake.model.script = b"<think>Hm.</think>Well."
    whole = client.chat(model="fake", messages=HELLO, think=True)
    assert (whole.message.thinking, whole.message.content) == ("Hm.", "Well.")
    assert fake.rendered["template_kwargs"]["enable_thinking"] is True
    generated = client.generate(model="fake", prompt="hello", think=False)
    assert (generated.thinking, generated.response) == ("Hm.", "Well.")
    assert fake.rendered["template_kwargs"]["enable_thinking"] is False


def test_tokens_have_logprobs(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = b"one"
    body = {"model": "fake", "messages": HELLO, "logprobs": True, "top_logprobs": 2}
    whole = server.post("/api/chat", {**body, "stream": False}).json
    lines = [json.loads(line) for line in server.post("/api/chat", body).body.splitlines()]
    assert [entry["token"] for entry in whole["logprobs"]] == list("one")
    assert [len(entry["top_logprobs"]) for entry in whole["logprobs"]] == [2, 2, 2]
    assert [entry for line in lines for entry in line.get("logprobs", ())] == whole["logprobs"]


def test_every_token_has_logprobs_also_those_of_marks(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = f"Well.{CALL}".encode()
    tool = {"type": "function", "function": {"name": "weather"}}
    body = {"model": "fake", "messages": HELLO, "logprobs": True, "tools": [tool]}
    whole = server.post("/api/chat", {**body, "stream": False}).json
    lines = [json.loads(line) for line in server.post("/api/chat", body).body.splitlines()]
    streamed = [entry for line in lines for entry in line.get("logprobs", ())]
    for entries in (whole["logprobs"], streamed):
        assert "".join(entry["token"] for entry in entries) == f"Well.{CALL}"
    assert whole["message"]["content"] == "Well."
    refused = server.post("/api/chat", {**body, "options": {"include": ["zap"]}})
    assert (refused.status, "include[0]" in refused.json["error"]) == (400, True)


def test_a_stream_is_lines_of_json(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = b"one"
    answer = server.post("/api/generate", {"model": "fake", "prompt": "x"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.body.endswith(b"\n")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert "".join(line["response"] for line in lines) == "one"


def test_without_a_prompt_nothing_is_generated(client: ollama.Client) -> None:
    assert client.generate(model="fake").done_reason == "load"
    assert client.chat(model="fake").done_reason == "load"


def test_what_a_client_asks_of_the_model(bundled: ollama.Client) -> None:
    (model,) = bundled.list().models
    assert model.model == "soliton-default"
    assert (model.size or 0) > 1_000_000
    (running,) = bundled.ps().models
    assert running.digest == model.digest
    shown = bundled.show("soliton-default")
    assert "completion" in (shown.capabilities or ())
    assert "tools" in (shown.capabilities or ())
    assert shown.modelinfo


def test_errors_have_a_sentence(server: LiveServer, client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as missing:
        client.chat(model="other", messages=HELLO)
    assert missing.value.status_code == 404
    for fields, words in (
        ({"options": {"temperature": -1}}, "temperature"),
        ({"options": {"top_k": "x"}}, "top_k"),
        ({"messages": [{**HELLO[0], "images": ["x"]}]}, "messages[0].images"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"messages": 3}, "messages"),
    ):
        answer = server.post("/api/chat", {"model": "fake", "messages": HELLO, **fields})
        assert answer.status == 400
        assert set(answer.json) == {"error"}
        assert words in answer.json["error"]
    assert set(server.post("/api/pull", {"model": "x"}).json) == {"error"}


def test_a_stream_that_fails_ends_with_its_error(fake: FakeEngine, client: ollama.Client) -> None:
    fake.faults[3] = MemoryError("planted")
    with pytest.raises(ollama.ResponseError, match="memory"):
        list(client.chat(model="fake", messages=HELLO, stream=True))


def test_options_without_effect_are_named(server: LiveServer) -> None:
    body = {"model": "fake", "messages": HELLO, "stream": False}
    options = {"num_ctx": 4096, "num_thread": 2, "num_predict": 2}
    warnings = server.post("/api/chat", {**body, "options": options}).json["warnings"]
    assert [warning["param"] for warning in warnings] == ["num_ctx"]
