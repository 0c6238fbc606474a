"""What a chat forces on the bundled model: calls that parse and fit their schema, and JSON."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.chat_client import PATH, assert_same, chunks, text_of, whole
from tests.support.live_server import LiveServer, live_server
from tests.support.schema_checker import fits, read_json

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "weather", "parameters": SCHEMA}
WEATHER: dict[str, Any] = {"type": "function", "function": FUNCTION}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
SCHEMAS = {"weather": SCHEMA, "clock": {"type": "object", "additionalProperties": False}}
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is the weather in Bergen?"}]
    return {"model": "soliton-default", "messages": messages, "max_tokens": 200, **fields}


def calls_of(choice: dict[str, Any]) -> list[tuple[str, Any]]:
    """Name and arguments of each call; the arguments fit the schema of the tool."""
    calls = []
    for call in choice["message"]["tool_calls"]:
        function = call["function"]
        arguments = read_json(function["arguments"])
        assert fits(arguments, SCHEMAS[function["name"]])
        calls.append((function["name"], arguments))
    return calls


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_demanded_call_is_made_and_fits_its_schema(
    server: LiveServer, choice: Any, seed: int
) -> None:
    asked = body(
        tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, temperature=1, seed=seed,
        logprobs=True,
    )  # fmt: skip
    answer = whole(server, asked)
    assert_same(chunks(server, asked), answer)
    reply = answer["choices"][0]
    assert reply["finish_reason"] == "tool_calls"
    ((name, _),) = calls_of(reply)
    assert choice == "required" or name == "weather"
    assert reply["message"]["content"] is None
    assert reply["logprobs"]["content"] == []
    called = text_of(reply["logprobs"]["tool_calls"])
    assert reply["message"]["tool_calls"][0]["function"]["arguments"] in called


def test_parallel_calls_are_several_or_one(server: LiveServer) -> None:
    counts = set()
    for seed in range(8):
        asked = body(
            tools=TOOLS, tool_choice="required", temperature=1.5, seed=seed, max_tokens=600
        )
        reply = whole(server, asked)["choices"][0]
        if reply["finish_reason"] == "tool_calls":
            counts.add(len(calls_of(reply)))
    assert min(counts) >= 1
    assert max(counts) > 1


def test_the_older_form_forces_too(server: LiveServer) -> None:
    functions = [tool["function"] for tool in TOOLS]
    asked = body(functions=functions, function_call={"name": "weather"}, seed=1)
    reply = whole(server, asked)["choices"][0]
    assert reply["finish_reason"] == "function_call"
    call = reply["message"]["function_call"]
    assert call["name"] == "weather"
    assert fits(read_json(call["arguments"]), SCHEMA)


def test_a_forced_call_that_is_cut_ends_by_its_length(server: LiveServer) -> None:
    asked = body(tools=[WEATHER], tool_choice="required", seed=3, temperature=1)
    n_tokens = whole(server, asked)["usage"]["completion_tokens"]
    for limit in (1, 4, n_tokens // 2, n_tokens - 4):
        short = {**asked, "max_tokens": limit}
        answer = whole(server, short)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert_same(chunks(server, short), answer)


@pytest.mark.parametrize(
    "format_",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}},
    ],
)
@pytest.mark.parametrize("tools", [{}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}])
def test_a_response_format_holds_together_with_tools(
    server: LiveServer, format_: dict[str, Any], tools: dict[str, Any]
) -> None:
    for seed in range(4):
        asked = body(response_format=format_, temperature=1, seed=seed, **tools)
        reply = whole(server, asked)["choices"][0]
        if reply["finish_reason"] == "tool_calls":
            assert "tool_choice" not in tools
            calls_of(reply)
        elif reply["finish_reason"] == "stop":
            said = read_json(reply["message"]["content"])
            assert fits(said, SCHEMA if "json_schema" in format_ else {"type": "object"})
        else:
            assert reply["finish_reason"] == "length"


def test_a_strict_tool_may_be_called_or_not(server: LiveServer) -> None:
    strict = {"type": "function", "function": {**FUNCTION, "strict": True}}
    reply = whole(server, body(tools=[strict], temperature=0, max_tokens=40))["choices"][0]
    if reply["finish_reason"] == "tool_calls":
        calls_of(reply)
    else:
        assert reply["message"]["content"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": {"type": 1}}}]},
            "tools[0].function.parameters",
        ),
        (
            {
                "tools": TOOLS,
                "tool_choice": "auto",
                "response_format": {
                    "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 1}},
                },
            },
            "response_format",
        ),
        ({"tools": TOOLS, "tool_choice": "auto", "guided_regex": "a+"}, "guided_regex"),
    ],
)  # fmt: skip
def test_what_cannot_be_forced_is_refused_by_name(
    server: LiveServer, fields: dict[str, Any], param: str
) -> None:
    answer = server.post(PATH, body(**{"tool_choice": "required", **fields}))
    assert answer.status == 400
    assert answer.error["param"] == param
