"""The official Python client for Anthropic's API against a live server."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from engine import Engine, EngineError
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

WEATHER: Any = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
GREEDY = {"temperature": 0}  # the client has no argument for it any more
HELLO: Any = [{"role": "user", "content": "hello"}]


def blocks(message: Any) -> list[Any]:
    """Its content, of which a test knows the kinds."""
    return [*message.content]


def client_of(server: LiveServer, key: str = "-") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=2048)


@pytest.fixture
def client(fake: FakeEngine) -> Iterator[anthropic.Anthropic]:
    with live_server(fake.as_engine) as server, client_of(server) as client:
        yield client


@pytest.fixture(scope="module")
def bundled(bundled_engine: Engine) -> Iterator[anthropic.Anthropic]:
    with live_server(bundled_engine) as server, client_of(server) as client:
        yield client


def test_streamed_and_whole_messages_agree(bundled: anthropic.Anthropic) -> None:
    request: Any = {
        "model": "soliton-default", "max_tokens": 5, "messages": HELLO, "extra_body": GREEDY
    }  # fmt: skip
    whole = bundled.messages.create(**request)
    assert whole.type == "message"
    assert whole.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == 5
    with bundled.messages.stream(**request) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == blocks(whole)[0].text
    assert [block.type for block in streamed.content] == ["text"]
    assert blocks(streamed)[0].text == text
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == 5
    n_prompt = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    assert streamed.usage.input_tokens + (streamed.usage.cache_read_input_tokens or 0) == n_prompt
    counted = bundled.messages.count_tokens(model="soliton-default", messages=HELLO)
    assert counted.input_tokens == n_prompt


def test_a_reply_is_that_of_the_chat_route(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server, client_of(server) as client:
        chat = {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]}
        answer = server.post("/v1/chat/completions", {**chat, "max_tokens": 16, "temperature": 0})
        message = client.messages.create(
            model="soliton-default", max_tokens=16, messages=HELLO, system="Be brief.",
            extra_body=GREEDY,
        )  # fmt: skip
    said = blocks(message)[0].text
    assert said == answer.json["choices"][0]["message"]["content"]


@pytest.mark.parametrize("extra", [{}, {"n_probs": 1}])
def test_a_call_is_a_block_of_its_own(
    fake: FakeEngine, client: anthropic.Anthropic, extra: dict[str, Any]
) -> None:
    fake.model.script = f"Well.\n{CALL}\n{CALL}".encode()
    request: Any = {
        "model": "fake", "max_tokens": 400, "messages": HELLO, "tools": [WEATHER],
        "extra_body": extra,
    }  # fmt: skip
    whole = client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert message.stop_reason == "tool_use"
        assert [block.type for block in blocks(message)] == ["text", "tool_use", "tool_use"]
        assert blocks(message)[0].text == "Well."
        assert [block.input for block in blocks(message)[1:]] == [{"city": "Oslo"}] * 2
        ids = {block.id for block in blocks(message)[1:]}
        assert len(ids) == 2


def test_the_tool_runner_goes_on_until_there_is_no_call(
    fake: FakeEngine, client: anthropic.Anthropic
) -> None:
    asked = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: Its name.
        """
        asked.append(city)
        fake.model.script = b"It rains."
        return "rain"

    fake.model.script = CALL.encode()
    runner = client.beta.messages.tool_runner(
        model="fake", max_tokens=400, messages=HELLO, tools=[weather]
    )
    last = runner.until_done()
    assert asked == ["Oslo"]
    assert blocks(last)[0].text == "It rains."
    assert last.stop_reason == "end_turn"
    turns = fake.rendered["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"]
    assert turns[2]["content"] == "rain"
    assert turns[2]["tool_call_id"] == turns[1]["tool_calls"][0]["id"]


def test_a_tool_can_be_demanded(bundled: anthropic.Anthropic) -> None:
    message = bundled.messages.create(
        model="soliton-default", max_tokens=60, messages=HELLO, tools=[WEATHER],
        tool_choice={"type": "tool", "name": "weather"},
    )  # fmt: skip
    (call,) = blocks(message)
    assert call.type == "tool_use"
    assert call.name == "weather"
    assert set(call.input) == {"city"}


def test_the_answer_follows_a_schema(bundled: anthropic.Anthropic) -> None:
    schema: Any = {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["size"],
        "additionalProperties": False,
    }
    message = bundled.messages.create(
        model="soliton-default", max_tokens=40, messages=HELLO,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )  # fmt: skip
    text = blocks(message)[0].text
    assert text[:8] == '{"size":'
    assert text[-1] == "}"


def test_thinking_is_a_block_before_the_text(fake: FakeEngine, client: anthropic.Anthropic) -> None:
    fake.writes(reasoning=True)
    fake.model.script = b"<think>Hm.</think>Well."
    request: Any = {
        "model": "fake", "max_tokens": 100, "messages": HELLO,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }  # fmt: skip
    whole = client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        thinking, text = blocks(message)
        assert thinking.type == "thinking"
        assert thinking.thinking == "Hm."
        assert thinking.signature
        assert text.text == "Well."
    assert fake.rendered["template_kwargs"]["enable_thinking"] is True
    again: Any = [*HELLO, {"role": "assistant", "content": whole.content}, *HELLO]
    client.messages.create(model="fake", max_tokens=4, messages=again)
    assert fake.rendered["messages"][1]["reasoning_content"] == "Hm."
    assert fake.rendered["template_kwargs"]["enable_thinking"] is False


def test_a_stop_sequence_ends_the_text(fake: FakeEngine, client: anthropic.Anthropic) -> None:
    fake.model.script = b"one two three"
    message = client.messages.create(
        model="fake", max_tokens=100, messages=HELLO, stop_sequences=["four", " three"]
    )
    assert blocks(message)[0].text == "one two"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " three")


def test_errors_have_the_classes_and_the_shape(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, api_keys=["right"]) as server:
        with client_of(server, "wrong") as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.create(model="fake", max_tokens=1, messages=HELLO)
        with client_of(server, "right") as client:
            with pytest.raises(anthropic.NotFoundError) as missing:
                client.messages.create(model="other", max_tokens=1, messages=HELLO)
            image: Any = {"type": "image", "source": {"type": "url", "url": "http://x"}}
            wrong: Any = [{"role": "user", "content": [image]}]
            with pytest.raises(anthropic.BadRequestError) as bad:
                client.messages.create(model="fake", max_tokens=1, messages=wrong)
    bodies: list[Any] = [missing.value.body, bad.value.body]
    assert bodies[0]["error"]["type"] == "not_found_error"
    assert bodies[1]["error"]["type"] == "invalid_request_error"
    assert "messages[0].content[0]" in bad.value.message
    assert bad.value.request_id == bodies[1]["request_id"]


def test_a_stream_that_fails_ends_with_its_error(
    fake: FakeEngine, client: anthropic.Anthropic
) -> None:
    fake.faults[3] = EngineError("the engine failed in this request")
    with (
        pytest.raises(anthropic.APIStatusError, match="engine"),
        client.messages.stream(model="fake", max_tokens=40, messages=HELLO) as stream,
    ):
        stream.get_final_message()
