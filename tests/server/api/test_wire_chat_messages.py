"""The messages and template variables of a chat request, and what the template gets of them."""

from typing import Any

import pytest

from tests.support.chat_client import PATH, USER, fake_body, whole
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer

CALL = {"id": "a1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}


@pytest.fixture
def fake(shared_fake: FakeEngine) -> FakeEngine:
    shared_fake.model.script = b"ok"
    return shared_fake


@pytest.fixture
def server(fake: FakeEngine, shared_server: LiveServer) -> LiveServer:
    return shared_server


def rendered(server: LiveServer, fake: FakeEngine, *messages: dict[str, Any]) -> list[Any]:
    whole(server, fake_body(messages=[*messages, USER]))
    return list(fake.rendered["messages"][:-1])


def refused(server: LiveServer, **fields: Any) -> str:
    answer = server.post(PATH, fake_body(**fields))
    assert answer.status == 400, answer.body
    return str(answer.error["param"])


def test_every_role_reaches_the_template(server: LiveServer, fake: FakeEngine) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief"},
        {"role": "system", "content": "be kind", "name": "rules"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        CALLS,
        {"role": "tool", "content": "blue", "tool_call_id": "a1", "name": "look"},
    ]
    assert rendered(server, fake, *messages) == [
        messages[0],
        messages[1],
        {"role": "user", "content": "a\nb"},
        CALLS,
        messages[4],
    ]


def test_older_calls_become_tool_calls(server: LiveServer, fake: FakeEngine) -> None:
    called = CALL["function"]
    first, second = (
        {"role": "assistant", "content": None, "function_call": called},
        {"role": "function", "name": "look", "content": "blue"},
    )
    one, answer, other, other_answer = rendered(server, fake, first, second, first, second)
    assert one["tool_calls"][0]["function"] == called
    assert "function_call" not in one
    assert (answer["role"], answer["name"], answer["content"]) == ("tool", "look", "blue")
    assert answer["tool_call_id"] == one["tool_calls"][0]["id"]
    assert other_answer["tool_call_id"] == other["tool_calls"][0]["id"] != answer["tool_call_id"]


def test_calls_are_text_for_a_template_without_calls(server: LiveServer, fake: FakeEngine) -> None:
    fake.writes(tools=False)
    result = {"role": "tool", "content": "blue", "tool_call_id": "a1"}
    twice = {**CALLS, "content": "Hm.", "tool_calls": [CALL, CALL]}
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
    response = "<tool_response>\nblue\n</tool_response>"
    assert rendered(server, fake, USER, CALLS, result, twice, result, result) == [
        USER,
        {"role": "assistant", "content": call},
        {"role": "user", "content": response},
        {"role": "assistant", "content": f"Hm.\n{call}\n{call}"},
        {"role": "user", "content": f"{response}\n{response}"},
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_in_history(server: LiveServer, fake: FakeEngine, name: str) -> None:
    turn = {"role": "assistant", "content": "4", name: "2 + 2"}
    assert rendered(server, fake, turn) == [
        {"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}
    ]
    only = {"role": "assistant", "content": None, name: "2 + 2"}
    assert rendered(server, fake, only)[0]["content"] == ""


def test_a_refusal_is_what_was_said(server: LiveServer, fake: FakeEngine) -> None:
    assert rendered(server, fake, {"role": "assistant", "content": None, "refusal": "no"}) == [
        {"role": "assistant", "content": "no"}
    ]
    part = {"type": "refusal", "refusal": "no"}
    assert rendered(server, fake, {"role": "assistant", "content": [part]})[0]["content"] == "no"


IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
TEXT = {"type": "text", "text": "what is this?"}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [TEXT, IMAGE]}, "content[1]"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "content[0]"),
        ({"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}, "content[0]"),
        ({"role": "user", "content": [TEXT, {"type": "text"}]}, "content[1].text"),
        ({"role": "user", "content": []}, "content"),
        ({"role": "user", "content": 1}, "content"),
        ({"role": "user"}, "content"),
        ({"role": "tool", "content": None, "tool_call_id": "a"}, "content"),
        ({"role": "assistant"}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "content"),
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "function", "content": "x"}, "name"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "user", "content": "x", "reasoning": "hm"}, "reasoning"),
        ({**CALLS, "function_call": CALL["function"]}, "function_call"),
        ({**CALLS, "tool_calls": [{**CALL, "type": "custom"}]}, "tool_calls[0].type"),
        ({**CALLS, "tool_calls": [{**CALL, "id": 1}]}, "tool_calls[0].id"),
        (
            {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"},
            "reasoning",
        ),
        ({"role": "oracle", "content": "x"}, "role"),
    ],
)
def test_a_wrong_message_is_refused_by_its_index(
    server: LiveServer, message: dict[str, Any], param: str
) -> None:
    assert refused(server, messages=[USER, message, USER]) == f"messages[1].{param}"


def test_a_lone_surrogate_is_refused_wherever_it_stands(server: LiveServer) -> None:
    function = {"name": "look", "arguments": "\ud800"}
    call = {**CALLS, "tool_calls": [{**CALL, "function": function}]}
    param = refused(server, messages=[USER, call, USER])
    assert param == "messages[1].tool_calls[0].function.arguments"
    assert refused(server, messages=[{**USER, "name": "\udfff"}]) == "messages[0].name"


def test_a_lone_surrogate_in_a_tool_that_is_described_is_refused(
    server: LiveServer, fake: FakeEngine
) -> None:
    fake.writes(tools=False)
    function = {"name": "look", "description": "\ud800"}
    assert refused(server, tools=[{"type": "function", "function": function}]) == "tools"
    assert refused(server, functions=[function]) == "functions"


def test_variables_reach_the_template(server: LiveServer, fake: FakeEngine) -> None:
    fake.template.source = (
        "{{ messages }}{{ reasoning_effort }}{{ thinking }}{{ a }}{{ documents }}"
    )
    whole(
        server,
        fake_body(
            reasoning_effort="high", verbosity="low", enable_thinking=True,
            chat_template_kwargs={"a": [1]}, documents=[{"title": "t"}],
        ),
    )  # fmt: skip
    assert fake.rendered["template_kwargs"] == {
        "reasoning_effort": "high", "verbosity": "low", "enable_thinking": True, "thinking": True,
        "a": [1],
    }  # fmt: skip
    assert fake.rendered["documents"] == [{"title": "t"}]


def test_variables_have_another_name(server: LiveServer, fake: FakeEngine) -> None:
    fake.template.source = "{{ messages }}{{ a }}"
    same = {"template_vars": {"a": 1}, "chat_template_kwargs": {"a": 1}}
    empty = {"template_vars": {"a": 1}, "chat_template_kwargs": {}}
    for fields in ({"template_vars": {"a": 1}}, same, empty):
        assert "warnings" not in whole(server, fake_body(**fields))
        assert fake.rendered["template_kwargs"] == {"a": 1}
    unused = whole(server, fake_body(template_vars={"b": 1}))
    assert [warning["param"] for warning in unused["warnings"]] == ["template_vars.b"]
    fields = {"template_vars": {"a": 1}, "chat_template_kwargs": {"a": 2}}
    assert refused(server, **fields) == "chat_template_kwargs"
    variables = {"enable_thinking": False}
    contradicted = refused(server, template_vars=variables, enable_thinking=True)
    assert contradicted == "template_vars.enable_thinking"


def test_no_effort_is_no_thinking(server: LiveServer, fake: FakeEngine) -> None:
    whole(server, fake_body(reasoning_effort="none"))
    assert fake.rendered["template_kwargs"] == {"enable_thinking": False, "thinking": False}


def test_a_variable_that_the_template_does_not_use_is_reported(
    server: LiveServer, fake: FakeEngine
) -> None:
    fields = {
        "reasoning_effort": "high", "verbosity": "low", "enable_thinking": True,
        "documents": [{}], "chat_template_kwargs": {"a": 1, "b": 2},
    }  # fmt: skip
    fake.template.source = "{{ messages }} {{ b }}"
    warnings = whole(server, fake_body(**fields))["warnings"]
    assert sorted(warning["param"] for warning in warnings) == [
        "chat_template_kwargs.a", "documents", "enable_thinking", "reasoning_effort", "verbosity",
    ]  # fmt: skip
    neutral = {"reasoning_effort": "none", "verbosity": "medium", "enable_thinking": False}
    assert "warnings" not in whole(server, fake_body(**neutral, documents=[]))
    assert refused(server, verbosity="low", strict=True) == "verbosity"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "none", "enable_thinking": True}, "enable_thinking"),
        (
            {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
        ),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"echo": True}, "echo"),
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "add_generation_prompt",
        ),
        ({"prediction": {"type": "content", "content": [IMAGE]}}, "prediction.content[0]"),
        ({"prediction": {"type": "content", "content": "\ud800"}}, "prediction.content"),
        ({"prediction": {"content": "x"}}, "prediction.type"),
        ({"documents": ["x"]}, "documents[0]"),
    ],
)
def test_what_contradicts_or_is_not_to_be_had_is_refused(
    server: LiveServer, fields: dict[str, Any], param: str
) -> None:
    assert refused(server, **fields) == param


def test_a_reply_goes_on_with_the_last_message(server: LiveServer, fake: FakeEngine) -> None:
    begun = [USER, {"role": "assistant", "content": "Once"}]
    answer = whole(server, fake_body(messages=begun, continue_final_message=True))
    assert answer["choices"][0]["message"]["content"] == "ok"
    assert fake.rendered["continue_final_message"] is True
    assert fake.rendered["add_generation_prompt"] is False
    whole(server, fake_body(messages=begun, add_generation_prompt=False))
    assert fake.rendered["continue_final_message"] is False
    assert fake.rendered["add_generation_prompt"] is False


@pytest.mark.parametrize(("limit", "n_prompt"), [(7, 7), (-1, 501), (9999, 524)])
def test_only_the_end_of_a_long_conversation_may_be_used(
    server: LiveServer, limit: int, n_prompt: int
) -> None:
    messages = [{"role": "user", "content": "x" * 506}]  # 524 tokens for a context of 512
    body = fake_body(messages=messages, truncate_prompt_tokens=limit, max_tokens=11)
    answer = server.post(PATH, body)
    if n_prompt > 512:
        assert answer.error["code"] == "context_length_exceeded"
    else:
        assert answer.json["usage"]["prompt_tokens"] == n_prompt
