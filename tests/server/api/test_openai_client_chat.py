"""Chats of the official Python client: tools, reasoning, JSON schemas and its stream helper."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
MESSAGES: Any = [{"role": "user", "content": "hello"}]


class City(pydantic.BaseModel):
    """What a reply is parsed into."""

    model_config = pydantic.ConfigDict(extra="forbid")

    country: str = pydantic.Field(max_length=8)
    size: int = pydantic.Field(ge=1, le=9)


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=2048)


@pytest.fixture
def client(fake: FakeEngine) -> Iterator[openai.OpenAI]:
    with (
        live_server(fake.as_engine) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def bundled_server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture
def bundled(bundled_server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{bundled_server.url}/v1", api_key="-", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("logprobs", [False, True])
def test_the_stream_helper_builds_calls(
    fake: FakeEngine, client: openai.OpenAI, logprobs: bool
) -> None:
    fake.model.script = f"Well.\n{CALL}\n{OTHER}".encode()
    tools = [{**WEATHER, "function": {**WEATHER["function"], "strict": False}}, CLOCK]
    options: Any = {"logprobs": True} if logprobs else {}
    with client.chat.completions.stream(
        model="fake", messages=MESSAGES, tools=tools, **options
    ) as stream:
        done = [
            (event.name, event.arguments)
            for event in stream
            if event.type == "tool_calls.function.arguments.done"
        ]
        final = stream.get_final_completion().choices[0]
    assert [name for name, _ in done] == ["weather", "clock"]
    assert final.finish_reason == "tool_calls"
    assert final.message.content == "Well."
    calls = final.message.tool_calls or []
    assert [call.function.name for call in calls] == ["weather", "clock"]
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Oslo"}, {}]
    assert len({call.id for call in calls}) == 2


def test_a_conversation_with_tools_goes_round(fake: FakeEngine, client: openai.OpenAI) -> None:
    fake.model.script = CALL.encode()
    tools: Any = [{"type": "function", "function": {"name": "weather"}}]
    first = client.chat.completions.create(model="fake", messages=MESSAGES, tools=tools)
    message: Any = first.choices[0].message
    assert message.tool_calls
    fake.model.script = b"It rains."
    second = client.chat.completions.create(
        model="fake",
        messages=[
            *MESSAGES,
            message,
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"},
        ],
    )
    assert second.choices[0].message.content == "It rains."
    assert "warnings" not in (second.model_extra or {})


def test_reasoning_is_joined_by_the_helper(fake: FakeEngine, client: openai.OpenAI) -> None:
    fake.writes(reasoning=True)
    fake.model.script = "<think>\nTwo ½ and two.</think>\n\nFour.".encode()
    with client.chat.completions.stream(model="fake", messages=MESSAGES) as stream:
        message: Any = stream.get_final_completion().choices[0].message
    assert message.reasoning_content == message.reasoning == "Two ½ and two."
    assert message.content == "Four."
    assert message.role == "assistant"


def test_a_forced_call_is_parsed_by_the_helper(bundled: openai.OpenAI) -> None:
    with bundled.chat.completions.stream(
        model="soliton-default", messages=MESSAGES, tools=[WEATHER], tool_choice="required",
        parallel_tool_calls=False, max_tokens=100, seed=1,
    ) as stream:  # fmt: skip
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls
    parsed: Any = final.message.tool_calls[0].function.parsed_arguments
    assert list(parsed) == ["city"]


def test_a_reply_is_parsed_into_a_model(bundled: openai.OpenAI) -> None:
    answer = bundled.chat.completions.parse(
        model="soliton-default", messages=MESSAGES, response_format=City, max_tokens=200, seed=1
    )
    assert isinstance(answer.choices[0].message.parsed, City)
    with bundled.chat.completions.stream(
        model="soliton-default", messages=MESSAGES, response_format=City, max_tokens=200, seed=1
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == answer.choices[0].message.parsed


async def test_the_async_helper_reads_several_choices(bundled_server: LiveServer) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{bundled_server.url}/v1", api_key="-") as client,
        client.chat.completions.stream(
            model="soliton-default", messages=MESSAGES, n=2, seed=4, temperature=1, stop="."
        ) as stream,
    ):
        final = await stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1]
    assert all(choice.message.role == "assistant" for choice in final.choices)
    assert final.choices[0].message.content != final.choices[1].message.content
