"""Tools in a chat: which may be called, which must be, and calls as they arrive."""

import json
from typing import Any

import pytest

from server.api.chat.tools import chat_tools
from server.schema.chat import ChatCompletionRequest
from tests.support.chat_client import (
    PATH,
    USER,
    assert_same,
    bytes_of,
    chunks,
    fake_body,
    joined,
    text_of,
    whole,
)
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "Look outside.", "parameters": SCHEMA},
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
ARGUMENTS = '{"city": "Bergen é", "days": 3}'
ASK = [{"role": "user", "content": "What is the weather in Bergen?"}]
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
OTHER_CALL = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def max_seq_len() -> int:
    return 2048


@pytest.fixture
def fake(shared_fake: FakeEngine) -> FakeEngine:
    return shared_fake


@pytest.fixture
def server(fake: FakeEngine, shared_server: LiveServer) -> LiveServer:
    return shared_server


def says(fake: FakeEngine, text: str) -> None:
    fake.model.script = text.encode()


def test_a_call_arrives_piece_by_piece(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    stream = chunks(server, fake_body(tools=TOOLS))
    deltas = [chunk["choices"][0]["delta"] for chunk in stream]
    assert deltas[0] == {"role": "assistant", "content": ""}
    (first,) = deltas[1]["tool_calls"]
    assert first.pop("id")
    assert first == {
        "index": 0, "type": "function", "function": {"name": "weather", "arguments": ""},
    }  # fmt: skip
    assert deltas[-1] == {}
    pieces = [call for delta in deltas[2:-1] for call in delta["tool_calls"]]
    assert len(pieces) > 5, "arguments come as they are made, not all at once"
    assert all(set(piece) == {"index", "function"} for piece in pieces)
    assert all(set(piece["function"]) == {"arguments"} for piece in pieces)
    assert "".join(piece["function"]["arguments"] for piece in pieces) == ARGUMENTS
    assert stream[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("before", ["", "Let me look. "])
@pytest.mark.parametrize("calls", [[CALL], [CALL, OTHER_CALL], [OTHER_CALL, CALL, CALL]])
@pytest.mark.parametrize("logprobs", [{}, {"logprobs": True, "top_logprobs": 1}])
def test_streamed_and_whole_agree(
    fake: FakeEngine,
    server: LiveServer,
    before: str,
    calls: list[str],
    logprobs: dict[str, Any],
) -> None:
    says(fake, before + "\n".join(calls))
    body = fake_body(tools=TOOLS, **logprobs)
    answer = whole(server, body)
    assert_same(chunks(server, body), answer)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == (before.rstrip() or None)
    called = [call["function"] for call in choice["message"]["tool_calls"]]
    assert [call["name"] for call in called] == [
        "weather" if call is CALL else "clock" for call in calls
    ]
    assert all(
        call["arguments"] == (ARGUMENTS if call["name"] == "weather" else "{}") for call in called
    )
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == len(calls)


def test_no_token_is_lost_and_each_is_in_its_list(fake: FakeEngine, server: LiveServer) -> None:
    text = f"Let me look.\n{CALL}"
    says(fake, text)
    logprobs = whole(server, fake_body(tools=TOOLS, logprobs=True))["choices"][0]["logprobs"]
    assert text_of(logprobs["content"]) == "Let me look."
    assert text_of(logprobs["tool_calls"]) == f"\n{CALL}"


def test_a_chunk_has_the_logprobs_of_what_it_says(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, f"Oh… {CALL}")
    for chunk in chunks(server, fake_body(tools=TOOLS, logprobs=True)):
        choice = chunk["choices"][0]
        content = choice["delta"].get("content", "")
        assert text_of((choice["logprobs"] or {"content": []})["content"]) == content


def test_calls_of_a_message_fit_into_the_next_request(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    message = whole(server, fake_body(tools=TOOLS))["choices"][0]["message"]
    call = message["tool_calls"][0]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    answer = whole(server, fake_body(tools=TOOLS, messages=[USER, message, result]))
    assert "warnings" not in answer
    assert fake.rendered["messages"][1]["tool_calls"] == [call]


@pytest.mark.parametrize("n_tokens", range(1, len(CALL.encode())))
def test_a_call_that_is_cut_ends_by_its_length(
    fake: FakeEngine, server: LiveServer, n_tokens: int
) -> None:
    says(fake, CALL)
    body = fake_body(tools=TOOLS, max_tokens=n_tokens, logprobs=True)
    answer = whole(server, body)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    # After the arguments, half a tag is text.
    told = [*choice["logprobs"].get("tool_calls", ()), *choice["logprobs"]["content"]]
    assert bytes_of(told) == CALL.encode()[:n_tokens]
    if n_tokens % 10 == 0:
        assert_same(chunks(server, body), answer)


def test_a_stop_string_cuts_a_call_as_it_cuts_text(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    body = fake_body(tools=TOOLS, stop='"days"')
    answer = whole(server, body)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Bergen é", '
    assert_same(chunks(server, body), answer)


@pytest.mark.parametrize("choice", ["none", None])
def test_without_tools_a_call_is_text(
    fake: FakeEngine, server: LiveServer, choice: str | None
) -> None:
    says(fake, CALL)
    fields = {} if choice is None else {"tools": TOOLS, "tool_choice": choice}
    answer = whole(server, fake_body(**fields))
    assert answer["choices"][0]["message"]["content"] == CALL
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert not fake.rendered["tools"]


def test_the_older_form_is_answered_in_kind(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    body = fake_body(functions=[WEATHER["function"]])
    answer = whole(server, body)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": ARGUMENTS}
    assert "tool_calls" not in choice["message"]
    assert_same(chunks(server, body), answer)
    says(fake, CALL)
    quiet = whole(server, fake_body(functions=[WEATHER["function"]], function_call="none"))
    assert quiet["choices"][0]["message"]["content"] == CALL


def test_the_template_gets_the_tools(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, "hm")
    whole(
        server, fake_body(tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": None}}])
    )
    assert fake.rendered["tools"] == [WEATHER]
    whole(server, fake_body(functions=[CLOCK["function"]]))
    assert fake.rendered["tools"] == [CLOCK]


def test_a_model_without_a_place_for_tools_gets_them_described(
    fake: FakeEngine, server: LiveServer
) -> None:
    fake.writes(tools=False)
    says(fake, CALL)
    answer = whole(server, fake_body(tools=TOOLS))
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    system, user = fake.rendered["messages"]
    assert (system["role"], user) == ("system", USER)
    assert "Look outside." in system["content"]
    assert not fake.rendered["tools"]
    says(fake, CALL)
    whole(server, fake_body(tools=TOOLS, messages=[{"role": "system", "content": "Hi."}, USER]))
    system, user = fake.rendered["messages"]
    assert system["content"].startswith("Hi.\n\n")
    assert "Look outside." in system["content"]


NAMED = {"type": "function", "function": {"name": "clock"}}
STRANGER = {"type": "function", "function": {"name": "oracle"}}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [WEATHER] * 2}, "tools[1].function.name"),
        ({"functions": [CLOCK["function"]] * 2}, "functions[1].name"),
        ({"tools": TOOLS, "tool_choice": STRANGER}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": allowed("auto")}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": allowed("auto", NAMED, STRANGER)},
            "tool_choice.allowed_tools.tools",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": NAMED}, "tool_choice"),
        ({"functions": [CLOCK["function"]], "function_call": {"name": "x"}}, "function_call"),
        ({"function_call": {"name": "clock"}}, "function_call"),
        ({"functions": [CLOCK["function"]], "tools": TOOLS}, "functions"),
        ({"function_call": "auto", "tools": TOOLS}, "function_call"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "x" * 65}}]},
            "tools[0].function.name",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": f"x{i}"}} for i in range(129)]},
            "tools",
        ),
    ],
)
def test_wrong_tools_are_refused(server: LiveServer, fields: dict[str, Any], param: str) -> None:
    answer = server.post(PATH, fake_body(**fields))
    assert answer.status == 400
    assert answer.error["param"] == param


def test_only_allowed_tools_are_calls(fake: FakeEngine, server: LiveServer) -> None:
    body = fake_body(tools=TOOLS, tool_choice=allowed("auto", NAMED))
    says(fake, CALL)
    assert whole(server, body)["choices"][0]["message"]["content"] == CALL
    assert len(fake.rendered["tools"]) == 2, "the model sees all of them"
    says(fake, OTHER_CALL)
    assert whole(server, body)["choices"][0]["finish_reason"] == "tool_calls"


def test_unknown_fields_of_tools_are_reported(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, "hm")
    tool = {"type": "function", "cache": 1, "function": {"name": "clock", "returns": {}}}
    warnings = whole(server, fake_body(tools=[tool]))["warnings"]
    assert [each["param"] for each in warnings] == ["tools[0].cache", "tools[0].function.returns"]


def test_choices_have_calls_of_their_own(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    body = fake_body(tools=TOOLS, n=3, logprobs=True)
    answer = whole(server, body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert_same(chunks(server, body), answer)
    ids = {choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]}
    assert len(ids) == 3


def test_arguments_are_json(fake: FakeEngine, server: LiveServer) -> None:
    says(fake, CALL)
    message = joined(chunks(server, fake_body(tools=TOOLS)))["message"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["days"] == 3


@pytest.mark.parametrize(
    ("choice", "asked", "parallel"),
    [
        ("auto", None, True),
        ("required", None, True),
        (NAMED, None, False),
        (NAMED, True, True),
        (NAMED, False, False),
        (allowed("required", NAMED), None, True),
    ],
)
def test_a_tool_that_is_named_is_called_once(
    choice: Any, asked: bool | None, parallel: bool
) -> None:
    body = fake_body(tools=TOOLS, tool_choice=choice, parallel_tool_calls=asked)
    assert chat_tools(ChatCompletionRequest.model_validate(body)).parallel == parallel
