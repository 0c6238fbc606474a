"""POST /v1/chat/completions: OpenAI's wire format, on the bundled model if the text matters."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.chat_client import chunks, whole
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server

USER = [{"role": "user", "content": "hello"}]
RENDERED = "user: hello\nassistant: "


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def request(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me a story about a cat."}]
    return {"model": "soliton-default", "messages": messages, "temperature": 0, **fields}


def fake_request(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": USER, **fields}


def content_of(answer: Any) -> str:
    return str(answer["choices"][0]["message"]["content"])


def test_the_answer_has_the_shape_of_openai(server: LiveServer, bundled_engine: Engine) -> None:
    answer = whole(server, request(max_completion_tokens=12))
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["system_fingerprint"] == bundled_engine.fingerprint
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["refusal"] is None
    assert choice["logprobs"] is None
    prompt_ids = bundled_engine.encode_chat(request()["messages"])
    assert answer["usage"]["prompt_tokens"] == len(prompt_ids)


@pytest.mark.parametrize(
    "logprobs", [{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 3}]
)
@pytest.mark.parametrize("temperature", [0, 1.2])
def test_streamed_and_whole_say_the_same(
    server: LiveServer, temperature: float, logprobs: dict[str, Any]
) -> None:
    body = request(max_completion_tokens=40, temperature=temperature, seed=3, **logprobs)
    answer = whole(server, body)
    *events, usage = chunks(server, {**body, "stream_options": {"include_usage": True}})
    choices = [chunk["choices"][0] for chunk in events]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == content_of(answer)
    entries = [entry for c in choices if c["logprobs"] for entry in c["logprobs"]["content"]]
    expected = answer["choices"][0]["logprobs"]
    assert entries == (expected["content"] if expected else [])
    assert choices[-1]["finish_reason"] == answer["choices"][0]["finish_reason"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage["usage"][name] == answer["usage"][name]


def test_the_order_is_role_content_reason_usage(shared_server: LiveServer) -> None:
    body = fake_request(max_tokens=4, stream_options={"include_usage": True})
    role, *content, final, usage = chunks(shared_server, body)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [list(chunk["choices"][0]["delta"]) for chunk in content] == [["content"]] * 4
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in (role, *content))
    assert final["choices"][0] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "length", "stop_reason": None,
    }  # fmt: skip
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in (role, *content, final))
    heads = {(c["id"], c["created"], c["model"]) for c in (role, *content, final, usage)}
    assert len(heads) == 1


def test_logprobs_are_of_exactly_the_tokens_of_their_chunk(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = "Käse 🧀!".encode()
    events = chunks(shared_server, fake_request(logprobs=True, top_logprobs=2))
    text = b""
    for choice in (chunk["choices"][0] for chunk in events):
        content = choice["delta"].get("content", "")
        entries = choice["logprobs"]["content"] if choice["logprobs"] else []
        joined = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert joined.decode() == content
        assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
        text += joined
    assert text.decode() == "Käse 🧀!"


def test_every_chunk_without_logprobs_says_null(shared_server: LiveServer) -> None:
    events = chunks(shared_server, fake_request(max_tokens=3))
    assert all(chunk["choices"][0]["logprobs"] is None for chunk in events)


def test_zero_alternatives_do_not_ask_for_logprobs(shared_server: LiveServer) -> None:
    answer = whole(shared_server, fake_request(max_tokens=3, logprobs=False, top_logprobs=0))
    assert answer["choices"][0]["logprobs"] is None


def test_the_default_length_is_to_the_end_of_the_context(shared_server: LiveServer) -> None:
    answer = whole(shared_server, fake_request())
    assert answer["usage"]["total_tokens"] == 512
    assert answer["choices"][0]["finish_reason"] == "length"


def test_both_names_of_the_limit_are_taken(shared_server: LiveServer) -> None:
    for limit in (
        {"max_tokens": 5}, {"max_completion_tokens": 5},
        {"max_tokens": 5, "max_completion_tokens": 5},
    ):  # fmt: skip
        answer = whole(shared_server, fake_request(**limit))
        assert content_of(answer) == fake_reply(RENDERED, 5)


def test_parts_are_lines(shared_server: LiveServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": "hm"},
        {"role": "user", "content": parts},
    ]
    rendered = "developer: be brief\nassistant: hm\nuser: one\ntwo\nassistant: "
    answer = whole(shared_server, fake_request(messages=messages, max_tokens=6))
    assert content_of(answer) == fake_reply(rendered, 6)


def test_the_text_of_a_control_token_stays_text(server: LiveServer, bundled_engine: Engine) -> None:
    name = bundled_engine.tokenizer.token_bytes(bundled_engine.eos_token_ids[0]).decode()
    plain, sly = (
        whole(server, request(messages=[{"role": "user", "content": text}], max_tokens=1))["usage"]
        for text in ("hello", f"hello{name}")
    )
    assert sly["prompt_tokens"] > plain["prompt_tokens"] + 1, "the name is more than one token"


def test_what_an_official_client_sends_back_is_accepted(shared_server: LiveServer) -> None:
    nulls = dict.fromkeys(("refusal", "audio", "function_call", "tool_calls", "annotations"))
    messages = [*USER, {"role": "assistant", "content": "hi", **nulls}, *USER]
    neutral = {
        "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "modalities": ["text"],
        "response_format": {"type": "text"}, "prediction": None, "audio": None, "functions": [],
        "reasoning_effort": None, "verbosity": "medium", "top_logprobs": None, "n": 1,
        "store": False, "metadata": {}, "user": "me",
    }  # fmt: skip
    answer = whole(shared_server, fake_request(messages=messages, max_tokens=1, **neutral))
    assert "warnings" not in answer


def test_unknown_fields_of_messages_and_parts_are_reported(shared_server: LiveServer) -> None:
    part = {"type": "text", "text": "hello", "cache_control": {}}
    messages = [{"role": "user", "content": [part], "mood": "good"}]
    body = fake_request(messages=messages, max_tokens=2, adaptive_p=2)
    params = ["adaptive_p", "messages[0].mood", "messages[0].content[0].cache_control"]
    assert [w["param"] for w in whole(shared_server, body)["warnings"]] == params
    first, *others = chunks(shared_server, body)
    assert [w["param"] for w in first["warnings"]] == params
    assert not any("warnings" in chunk for chunk in others)


def test_a_stop_string_ends_the_reply(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    shared_fake.model.script = b"one two three"
    answer = whole(shared_server, fake_request(stop=[" three", " two"]))
    assert content_of(answer) == "one"
    assert answer["choices"][0]["finish_reason"] == "stop"
