"""Reasoning in a chat: split from the content, under both of its names, counted and timed apart."""

from typing import Any

import pytest

from tests.support.chat_client import assert_same, chunks, fake_body, text_of, whole
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer

THOUGHT = "Two and two: ½ of eight."
SCRIPT = f"<think>\n{THOUGHT}\n</think>\n\nIt is 4."


@pytest.fixture
def fake(shared_fake: FakeEngine) -> FakeEngine:
    shared_fake.writes(reasoning=True)
    shared_fake.model.script = SCRIPT.encode()
    return shared_fake


@pytest.fixture
def server(fake: FakeEngine, shared_server: LiveServer) -> LiveServer:
    return shared_server


def test_reasoning_stands_apart_under_both_names(server: LiveServer) -> None:
    message = whole(server, fake_body())["choices"][0]["message"]
    assert message["content"] == "It is 4."
    assert message["reasoning_content"] == message["reasoning"] == THOUGHT


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": True, "top_logprobs": 2}])
@pytest.mark.parametrize("limit", [None, 3, 12, 40, 45])
def test_streamed_and_whole_agree(
    server: LiveServer, logprobs: dict[str, Any], limit: int | None
) -> None:
    body = fake_body(max_tokens=limit, **logprobs)
    answer = whole(server, body)
    assert_same(chunks(server, body), answer)
    assert answer["choices"][0]["finish_reason"] == ("length" if limit else "stop")


def test_a_chunk_says_one_of_the_two(server: LiveServer) -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(server, fake_body())]
    assert deltas[0] == {"role": "assistant", "content": ""}
    kinds = [set(delta) for delta in deltas[1:-1]]
    n_reasoning = kinds.count({"reasoning_content", "reasoning"})
    assert n_reasoning > 5
    assert kinds[n_reasoning:] == [{"content"}] * (len(kinds) - n_reasoning)


def test_each_token_is_in_the_list_of_its_channel(server: LiveServer) -> None:
    logprobs = whole(server, fake_body(logprobs=True))["choices"][0]["logprobs"]
    assert text_of(logprobs["content"]) == "It is 4."
    assert text_of(logprobs["reasoning_content"]) == SCRIPT.removesuffix("It is 4.")
    assert "tool_calls" not in logprobs


def test_a_prompt_may_have_opened_the_reasoning(fake: FakeEngine, server: LiveServer) -> None:
    fake.opening = "<think>\n"
    fake.model.script = f"{THOUGHT}</think>4".encode()
    message = whole(server, fake_body())["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == (THOUGHT, "4")


def test_a_reply_without_reasoning_says_nothing_of_it(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = b"4"
    choice = whole(server, fake_body(logprobs=True))["choices"][0]
    assert set(choice["message"]) == {"role", "content", "refusal"}
    assert set(choice["logprobs"]) == {"content", "refusal"}


def test_usage_counts_the_tokens_of_the_reasoning(server: LiveServer) -> None:
    n_marked = len(SCRIPT.removesuffix("It is 4.").encode())
    answer = whole(server, fake_body())
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == n_marked
    *_, last = chunks(server, fake_body(n=2, stream_options={"include_usage": True}))
    assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2 * n_marked


def test_a_call_may_follow_the_reasoning(fake: FakeEngine, server: LiveServer) -> None:
    call = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
    fake.model.script = f"<think>hm</think>\n{call}".encode()
    body = fake_body(tools=[{"type": "function", "function": {"name": "clock"}}], logprobs=True)
    answer = whole(server, body)
    assert_same(chunks(server, body), answer)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning"] == "hm"
    assert choice["message"]["content"] is None
    told = [choice["logprobs"][name] for name in ("reasoning_content", "tool_calls")]
    assert "".join(map(text_of, told)).encode() == fake.model.script


def test_a_stop_string_in_the_reasoning_ends_the_reply(server: LiveServer) -> None:
    choice = whole(server, fake_body(stop=" of"))["choices"][0]
    assert choice["message"]["reasoning"] == "Two and two: ½"
    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == "stop"


CLOCK = {"type": "function", "function": {"name": "clock"}}
JSON = {"response_format": {"type": "json_object"}}
FORCED = {"tools": [CLOCK], "tool_choice": "required", "parallel_tool_calls": False}
CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("fields", "wanted"), [(JSON, '{"a": 1}'), (FORCED, CALL)])
def test_a_constraint_begins_after_the_reasoning(
    fake: FakeEngine, server: LiveServer, fields: dict[str, Any], wanted: str, is_open: bool
) -> None:
    opening = "<think>"
    fake.opening = opening if is_open else ""
    thought = f"No {{JSON}} here: {THOUGHT}</think>\n\n"
    # Greedy, and the script's next token after the constraint's end may not be drawn.
    fake.model.script = f"{'' if is_open else opening}{thought}{wanted} and more".encode()
    choice = whole(server, fake_body(max_tokens=200, **fields))["choices"][0]
    message = choice["message"]
    assert message["reasoning"] == f"No {{JSON}} here: {THOUGHT}"
    if "tools" in fields:
        assert choice["finish_reason"] == "tool_calls"
        assert message["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}
    else:
        assert choice["finish_reason"] == "stop"
        assert message["content"] == wanted


def test_a_reply_may_skip_the_reasoning_and_is_constrained_then(
    fake: FakeEngine, server: LiveServer
) -> None:
    fake.model.script = b'{"a": 1}'
    choice = whole(server, fake_body(**JSON))["choices"][0]
    assert choice["message"]["content"] == '{"a": 1}'
    assert "reasoning" not in choice["message"]
