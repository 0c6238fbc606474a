"""One way from a conversation to its prompt, whichever route it comes by."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from server.api.chat.turn import chat_turn, template_turn
from server.chat.turn import ChatTurn
from server.errors import RequestError
from server.http.large_bodies import LargeBodies
from server.schema.chat import ChatCompletionRequest
from server.schema.tokens import TemplateFields, TemplateRequest
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Is it raining?"}
CALL = {
    "id": "abcdefgh1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "content": "no"},
    {"role": "assistant", "content": "No.", "reasoning_content": "dry"},
    {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "?"}]},
]
FUNCTION = {
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS = [
    {"type": "function", "function": FUNCTION},
    {"type": "function", "function": {"name": "f"}},
]
PROMPTS: dict[str, dict[str, Any]] = {
    "one message": {"messages": [USER]},
    "a history": {"messages": HISTORY},
    "tools": {"messages": HISTORY, "tools": TOOLS},
    "tools without a system message": {"messages": [USER], "tools": TOOLS},
    "documents": {"messages": [USER], "documents": [{"title": "t", "text": "x"}]},
    "variables": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}},
    "no beginning of a reply": {"messages": HISTORY, "add_generation_prompt": False},
    "an open message": {"messages": HISTORY[:5], "continue_final_message": True},
    "a long one": {"messages": [USER] * 200, "tools": TOOLS},
}


@pytest.fixture(scope="module")
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=8192)


@pytest.fixture(scope="module")
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


@pytest.fixture(scope="module")
def bundled_server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def ask(server: LiveServer, path: str, body: dict[str, Any]) -> Any:
    answer = server.post(path, body)
    assert answer.status == 200, answer.body
    return answer.json


def chat_ids(server: LiveServer, prompt: dict[str, Any]) -> Any:
    fields = {"max_tokens": 1, "return_token_ids": True}
    return ask(server, CHAT, {**prompt, **fields})["prompt_token_ids"]


def turn_fields(turn: ChatTurn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in ChatTurn.__slots__}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("knows_tools", [True, False])
def test_all_routes_render_the_same(
    fake: FakeEngine, server: LiveServer, prompt: dict[str, Any], knows_tools: bool
) -> None:
    fake.writes(tools=knows_tools)
    ids = chat_ids(server, prompt)
    rendered = fake.rendered
    assert bool(rendered["tools"]) == (knows_tools and "tools" in prompt)

    fake.rendered = {}
    assert ask(server, "/tokenize", prompt)["tokens"] == ids
    assert fake.rendered == rendered

    fake.rendered = {}
    assert ask(server, "/apply-template", prompt)["prompt"] == bytes(ids).decode()
    assert fake.rendered == rendered


@pytest.mark.parametrize("messages", [[USER], HISTORY], ids=["one", "many"])
@pytest.mark.parametrize("knows_tools", [True, False])
def test_tabby_renders_the_same_without_the_beginning_of_a_reply(
    fake: FakeEngine, server: LiveServer, messages: list[Any], knows_tools: bool
) -> None:
    fake.writes(tools=knows_tools)
    ids = chat_ids(server, {"messages": messages, "add_generation_prompt": False})
    rendered, fake.rendered = fake.rendered, {}
    assert ask(server, "/v1/token/encode", {"text": messages})["tokens"] == ids
    assert fake.rendered == rendered


@pytest.mark.parametrize("name", ["one message", "tools", "no beginning of a reply"])
def test_of_a_real_model_too(bundled_server: LiveServer, bundled_engine: Engine, name: str) -> None:
    ids = chat_ids(bundled_server, PROMPTS[name])
    assert ask(bundled_server, "/tokenize", PROMPTS[name])["tokens"] == ids
    text = ask(bundled_server, "/apply-template", PROMPTS[name])["prompt"]
    assert text == bundled_engine.tokenizer.decode(ids)


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
async def test_a_turn_is_the_same_of_either_wire(prompt: dict[str, Any]) -> None:
    chat = ChatCompletionRequest.model_validate(prompt)
    template = TemplateRequest.model_validate(prompt)
    bodies = LargeBodies()
    one = await chat_turn(bodies, chat, n_body=100)
    other = await template_turn(bodies, template, template.messages, n_body=100)
    assert turn_fields(one) == turn_fields(other)


async def test_the_older_names_of_tools_make_the_same_turn() -> None:
    newer = {"messages": [USER], "tools": TOOLS, "parallel_tool_calls": False}
    older = {"messages": [USER], "functions": [tool["function"] for tool in TOOLS]}
    one, other = [
        await chat_turn(LargeBodies(), ChatCompletionRequest.model_validate(body), n_body=100)
        for body in (newer, older)
    ]
    assert (one.tools.param, other.tools.param) == ("tools", "functions")
    assert [tool.param for tool in other.tools.shown] == [
        "functions[0].parameters",
        "functions[1].parameters",
    ]
    for turn in (one, other):
        assert [tool.name for tool in turn.tools.shown] == ["weather", "f"]
        assert turn.tools.callable == turn.tools.shown
        assert (turn.tools.required, turn.tools.parallel, turn.tools.strict) == (False,) * 3


async def test_a_turn_has_the_form_that_its_text_must_have() -> None:
    body = {"messages": [USER], "guided_regex": "a+"}
    turn = await chat_turn(LargeBodies(), ChatCompletionRequest.model_validate(body), n_body=100)
    assert turn.wanted is not None
    assert (turn.wanted.kind, turn.wanted.param) == ("regex", "guided_regex")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "add_generation_prompt",
        ),
    ],
)
async def test_an_end_that_cannot_be_is_refused_on_both_wires(
    fields: dict[str, Any], param: str
) -> None:
    chat = ChatCompletionRequest.model_validate({"messages": [USER], **fields})
    with pytest.raises(RequestError) as caught:
        await chat_turn(LargeBodies(), chat, n_body=100)
    assert caught.value.param == param
    with pytest.raises(RequestError) as caught:
        await template_turn(LargeBodies(), TemplateFields(**fields), chat.messages, n_body=100)
    assert caught.value.param == param
