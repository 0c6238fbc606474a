"""Models with their own format of tool calls, served by a real server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.engine.chat.test_call_shape import loaded_with
from tests.support.call_templates import CHANNELS, FUNCTION_TAG, PYTHON, TAGGED_LIST
from tests.support.family_templates import DEEPSEEK_V31, GEMMA, GLM, GRANITE_3, HARMONY, THOUGHT
from tests.support.live_server import LiveServer, live_server

PLAIN = """
{%- if messages[0].role == 'system' %}{{- '<|turn|>system\\n' + messages[0].content + '<|end|>' }}
{%- else %}{{- '<|turn|>system\\nYou are Ann.<|end|>' }}{%- endif %}
{%- for message in messages if message.role != 'system' %}
    {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn|>assistant\\n' }}{%- endif %}
"""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rom", "Ulm"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
QUESTION = {"role": "user", "content": "Is it raining?"}


FORMATS = {
    "tag": FUNCTION_TAG,
    "list": TAGGED_LIST,
    "channels": CHANNELS,
    "glm": GLM.replace(THOUGHT, ""),
    "gemma": GEMMA.replace("<channel|>", ""),
    "granite": GRANITE_3,
    "deepseek": re.sub("</?think>", "", DEEPSEEK_V31),
}


@pytest.fixture(params=list(FORMATS.values()), ids=list(FORMATS))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(loaded_with(request.param, tmp_path, max_seq_len=512)) as live:
        yield live


def body(engine_name: str = "model", **fields: Any) -> dict[str, Any]:
    common = {"model": engine_name, "messages": [QUESTION], "tools": TOOLS, "max_tokens": 120}
    return {**common, "seed": 1, **fields}


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_forced_call_comes_in_the_models_own_format(server: LiveServer, choice: Any) -> None:
    request = body(tool_choice=choice, parallel_tool_calls=False)
    answer = server.post("/v1/chat/completions", request)
    assert answer.status == 200, answer.body
    (made,) = answer.json["choices"]
    (call,) = made["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    # The budget may have cut it after that.
    assert re.match(r'\{\s*"city"\s*:\s*"(Rom|Ulm)"', call["function"]["arguments"])
    assert not made["message"]["content"]
    streamed = server.post("/v1/chat/completions", {**request, "stream": True}).body.decode()
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line[:7] == "data: {"]
    pieces = [
        piece["function"]
        for event in events
        for choice_ in event["choices"]
        for piece in choice_["delta"].get("tool_calls", ())
    ]
    assert pieces[0] == {"name": "get_weather", "arguments": ""}
    assert "".join(piece["arguments"] for piece in pieces) == call["function"]["arguments"]
    assert len(pieces) > 2, "the arguments come piece by piece"


def test_the_format_of_calls_is_reported(server: LiveServer, request: Any) -> None:
    is_described = "deepseek" in request.node.name
    said = "described" if is_described else "template"
    assert server.get("/props").json["engine"]["tool_calls"] == said


def test_calls_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with live_server(loaded_with(PYTHON, tmp_path)) as server:
        assert server.get("/props").json["engine"]["tool_calls"] == "unreadable"


def prompt_of(server: LiveServer, **fields: Any) -> str:
    request = {"messages": [QUESTION], "model": "model", **fields}
    answer = server.post("/apply-template", request)
    assert answer.status == 200, answer.body
    return str(answer.json["prompt"])


def test_tools_keep_the_system_text_that_the_model_has_by_default(tmp_path: Path) -> None:
    with live_server(loaded_with(PLAIN, tmp_path)) as server:
        prompt = prompt_of(server, tools=TOOLS)
        assert prompt.startswith("<|turn|>system\nYou are Ann.\n\nYou can call these functions")
        assert prompt.count("<|turn|>system") == 1
        own = [{"role": "system", "content": "You are Bob."}, QUESTION]
        assert "You are Bob.\n\nYou can call" in prompt_of(server, tools=TOOLS, messages=own)
        assert "Ann" not in prompt_of(server, tools=TOOLS, messages=own)


def test_a_model_without_a_default_gets_the_description_alone(bundled_engine: Engine) -> None:
    assert bundled_engine.template is not None
    assert not bundled_engine.template.default_system()
    with live_server(bundled_engine) as server:
        prompt = prompt_of(server, tools=TOOLS, model=bundled_engine.model_id)
    assert "You can call these functions" in prompt


HISTORY = [
    QUESTION,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "callcall0",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Rom"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "callcall0", "content": "Rain."},
]


@pytest.mark.parametrize(
    ("template", "call"),
    [
        (GEMMA, '<|tool_call>call:get_weather{city:<|"|>Rom<|"|>}<tool_call|>'),
        (GRANITE_3, '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rom"}}]'),
        (HARMONY, 'to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Rom"}'),
    ],
    ids=["gemma", "granite", "harmony"],
)
def test_calls_of_earlier_turns_stand_in_the_prompt(
    tmp_path: Path, template: str, call: str
) -> None:
    with live_server(loaded_with(template, tmp_path)) as server:
        prompt = prompt_of(server, tools=TOOLS, messages=HISTORY)
    assert call in prompt
    assert "Rain." in prompt


def test_a_template_with_calls_but_without_tools_has_them_described_in_its_own_form(
    tmp_path: Path,
) -> None:
    """Calls and results of earlier turns are those that the template writes."""
    with live_server(loaded_with(DEEPSEEK_V31, tmp_path)) as server:
        prompt = prompt_of(server, tools=TOOLS, messages=HISTORY)
        plain = prompt_of(server, messages=HISTORY)
    description, _, rest = prompt.partition("<\uff5cUser\uff5c>")
    separator = "<\uff5ctool\u2581sep\uff5c>"
    assert description.startswith("You can call these functions")
    assert "get_weather" in description
    assert f'the name{separator}{{"an argument": "its value"}}' in description
    assert f'get_weather{separator}{{"city": "Rom"}}' in rest
    assert "<\uff5ctool\u2581output\u2581begin\uff5c>Rain." in rest
    assert "<tool_call>" not in prompt
    assert plain == prompt.removeprefix(description)


def test_reasoning_in_harmonys_channel_is_no_content(tmp_path: Path) -> None:
    """The grammar of a forced call allows analysis first, and this model goes on with it."""
    with live_server(loaded_with(HARMONY, tmp_path)) as server:
        request = body(tool_choice="required", max_tokens=60)
        (made,) = server.post("/v1/chat/completions", request).json["choices"]
    assert made["message"]["reasoning_content"]
    assert not made["message"]["content"]
    assert made["finish_reason"] == "length"
