"""The official Python client asks for objects, tools, several choices and metadata: its helpers put
together what a whole answer says.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, ConfigDict, Field

from engine import Engine
from server.answer.metadata import REQUEST_NAMES, TOKEN_NAMES
from tests.support.live_server import live_server

pytestmark = pytest.mark.clients

MODEL = "soliton-default"
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me about a frog."}]
# At temperature 1 the model prefers no answer.
DRAWN: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "temperature": 1}
SEEDS = range(4)


class Animal(BaseModel):
    """Its size is bounded, so that every answer ends by itself."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=12)]
    legs: Annotated[int, Field(ge=0, le=8)]
    mood: Literal["happy", "sad"]


@pytest.fixture(scope="module")
def client(bundled_engine: Engine) -> Iterator[openai.OpenAI]:
    with (
        live_server(bundled_engine) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        yield client


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_are_parsed_whole_and_streamed(client: openai.OpenAI, seed: int) -> None:
    whole = client.chat.completions.parse(**DRAWN, seed=seed, response_format=Animal)
    animal = whole.choices[0].message.parsed
    assert isinstance(animal, Animal)
    with client.chat.completions.stream(**DRAWN, seed=seed, response_format=Animal) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == animal
    assert final.choices[0].message.content == whole.choices[0].message.content


@pytest.mark.parametrize("seed", SEEDS)
def test_tool_calls_are_parsed_whole_and_streamed(client: openai.OpenAI, seed: int) -> None:
    tools: dict[str, Any] = {
        "tools": [openai.pydantic_function_tool(Animal)],
        "tool_choice": {"type": "function", "function": {"name": "Animal"}},
    }
    whole = client.chat.completions.parse(**DRAWN, seed=seed, **tools)
    [call] = whole.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Animal)
    with client.chat.completions.stream(**DRAWN, seed=seed, **tools) as stream:
        deltas = [
            event.arguments_delta
            for event in stream
            if event.type == "tool_calls.function.arguments.delta"
        ]
        final = stream.get_final_completion()
    [streamed] = final.choices[0].message.tool_calls or []
    assert streamed.function.parsed_arguments == call.function.parsed_arguments
    assert streamed.function.name == "Animal"
    assert "".join(deltas) == call.function.arguments == streamed.function.arguments
    assert final.choices[0].finish_reason == "tool_calls"


def test_choices_are_put_together_apart(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {**DRAWN, "seed": 3, "n": 3, "stop": [".", "!", "?"]}
    whole = client.chat.completions.create(**ask)
    with client.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion()
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in final.choices] == [0, 1, 2]
    assert [choice.message.content for choice in final.choices] == texts
    assert len(set(texts)) > 1


def test_all_metadata_survives_the_helper(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {**DRAWN, "seed": 3, "logprobs": True, "top_logprobs": 2, "stop": "."}
    # Times differ between runs; progress comes in chunks without a choice.
    names = sorted({*TOKEN_NAMES, *REQUEST_NAMES} - {"time", "timings", "progress"})
    include = {"include": names}
    whole = client.chat.completions.create(**ask, extra_body=include)
    with client.chat.completions.stream(**ask, extra_body=include) as stream:
        final = stream.get_final_completion()
    assert whole.choices[0].logprobs
    assert final.choices[0].logprobs
    entries = [entry.model_dump() for entry in whole.choices[0].logprobs.content or []]
    assert [e.model_dump() for e in final.choices[0].logprobs.content or []] == entries
    plain = {"token", "bytes", "logprob", "top_logprobs"}
    assert len(entries[0].keys() - plain) >= 9
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_progress_does_not_disturb_the_helper(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {**DRAWN, "seed": 3, "stop": "."}
    plain = client.chat.completions.create(**ask)
    include = {"include": ["progress", "timings", "time"], "cache_salt": "unseen"}
    with client.chat.completions.stream(**ask, extra_body=include) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == plain.choices[0].message.content


def test_a_scored_prompt_has_the_tokens_of_its_echo(client: openai.OpenAI) -> None:
    scored = client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=0, echo=True, logprobs=1
    )
    echoed = client.completions.create(
        model=MODEL, prompt="Once upon a time", max_tokens=2, echo=True, logprobs=1, temperature=0
    )
    one, other = scored.choices[0].logprobs, echoed.choices[0].logprobs
    assert one
    assert other
    assert one.token_logprobs
    assert one.token_logprobs[0] is None
    assert one.token_logprobs == (other.token_logprobs or [])[:-2]
    assert "".join(one.tokens or []) == scored.choices[0].text == "Once upon a time"
