"""The official Python client's Responses against a live server: its helpers, and what is stored."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from engine import Engine, EngineError
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.clients

MODEL = "soliton-default"
ASK: Any = {"model": MODEL, "input": "A story about a frog, please."}


class Animal(BaseModel):
    """Its size is bounded, so that every answer ends by itself."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]
    mood: Literal["happy", "sad"]


def client_of(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)


@pytest.fixture(scope="module")
def client(bundled_engine: Engine) -> Iterator[openai.OpenAI]:
    with live_server(bundled_engine) as server, client_of(server) as client:
        yield client


def told(value: Any) -> Any:
    """Without what the client adds."""
    if isinstance(value, list):
        return [told(each) for each in value]
    if not isinstance(value, dict):
        return value
    added = ("parsed", "parsed_arguments")
    return {key: told(each) for key, each in value.items() if key not in added}


def text_of(item: dict[str, Any]) -> Any:
    [part] = item["content"]
    return part["text"]


def test_streamed_whole_and_stored_responses_agree(client: openai.OpenAI) -> None:
    ask = {**ASK, "temperature": 0, "extra_body": {"stop": ["."]}}
    whole = client.responses.create(**ask)
    assert (whole.status, whole.object) == ("completed", "response")
    assert whole.usage is not None
    with client.responses.stream(**ask) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == whole.output_text
    assert final.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens
    stored = client.responses.retrieve(final.id)
    assert told(stored.to_dict()) == told(final.to_dict())
    raw = list(client.responses.create(**ask, stream=True))
    assert [event.type for event in raw] == [event.type for event in events]
    assert [event.sequence_number for event in raw] == list(range(len(raw)))


def test_a_response_is_that_of_the_chat_route(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": ASK["input"]},
        ],
        temperature=0,
        max_completion_tokens=16,
        logprobs=True,
        top_logprobs=2,
    )
    answer = client.responses.create(
        **ASK,
        instructions="Be brief.",
        temperature=0,
        max_output_tokens=16,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text == chat.choices[0].message.content
    [item] = answer.output
    assert item.type == "message"
    [part] = item.content
    assert part.type == "output_text"
    entries = chat.choices[0].logprobs
    assert entries is not None
    assert entries.content is not None
    assert [entry.to_dict() for entry in part.logprobs or ()] == [
        entry.to_dict() for entry in entries.content
    ]


@pytest.mark.parametrize("seed", range(2))
def test_objects_are_parsed_whole_and_streamed(client: openai.OpenAI, seed: int) -> None:
    ask: Any = {**ASK, "temperature": 1, "extra_body": {"seed": seed}, "text_format": Animal}
    whole = client.responses.parse(**ask)
    assert isinstance(whole.output_parsed, Animal)
    with client.responses.stream(**ask) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == whole.output_parsed
    assert final.output_text == whole.output_text


def test_calls_are_parsed_whole_and_streamed(client: openai.OpenAI) -> None:
    ask: Any = {
        **ASK,
        "temperature": 1,
        "extra_body": {"seed": 3},
        "tools": [openai.pydantic_function_tool(Animal)["function"] | {"type": "function"}],
        "tool_choice": {"type": "function", "name": "Animal"},
    }
    whole = client.responses.parse(**ask)
    [call] = whole.output
    assert call.type == "function_call"
    with client.responses.stream(**ask) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [
        event.delta for event in events if event.type == "response.function_call_arguments.delta"
    ]
    [streamed] = final.output
    assert streamed.type == "function_call"
    assert "".join(deltas) == streamed.arguments == call.arguments
    assert Animal.model_validate_json(call.arguments) == Animal.model_validate(
        streamed.parsed_arguments
    )
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}
    again = client.responses.create(
        **{**ASK, "input": [result]}, previous_response_id=whole.id, max_output_tokens=4
    )
    assert again.previous_response_id == whole.id


def test_a_stream_is_taken_up_again(client: openai.OpenAI) -> None:
    ask = {**ASK, "temperature": 0, "extra_body": {"stop": ["."]}}
    first = list(client.responses.create(**ask, stream=True, background=True))
    assert first[0].type == "response.created"
    id_ = first[0].response.id
    for after in (0, 5, len(first) - 2):
        rest = list(client.responses.retrieve(id_, stream=True, starting_after=after))
        assert [event.to_dict() for event in rest] == [
            event.to_dict() for event in first[after + 1 :]
        ]
    with client.responses.stream(response_id=id_) as stream:
        final = stream.get_final_response()
    assert told(final.to_dict()) == told(client.responses.retrieve(id_).to_dict())


def test_what_is_stored_is_listed_cancelled_and_deleted(client: openai.OpenAI) -> None:
    items: Any = [{"role": "user", "content": str(i)} for i in range(5)]
    answer = client.responses.create(**{**ASK, "input": items}, max_output_tokens=2)
    listed = list(client.responses.input_items.list(answer.id, limit=2, order="asc"))
    assert [text_of(item.to_dict()) for item in listed] == list("01234")
    counted = client.responses.input_tokens.count(model=MODEL, input=items)
    assert answer.usage is not None
    assert counted.input_tokens == answer.usage.input_tokens
    running = client.responses.create(**ASK, background=True, extra_body={"ignore_eos": True})
    assert running.status == "queued"
    cancelled = client.responses.cancel(running.id)
    assert cancelled.status == "cancelled"
    for id_ in (answer.id, running.id):
        client.responses.delete(id_)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(id_)


def test_errors_have_their_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="none", input="x")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
    assert refused.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="x", max_output_tokens=100_000)


def test_a_failure_in_the_stream_is_told() -> None:
    fake = FakeEngine()
    fake.model.script = b"one two three"
    fake.faults[5] = EngineError("it broke")
    with live_server(fake.as_engine) as server, client_of(server) as client:
        with client.responses.stream(model="fake", input="x") as stream:
            last = list(stream)[-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert last.response.error.code == "server_error"
        stored = client.responses.retrieve(last.response.id)
        assert stored.to_dict() == last.response.to_dict()
