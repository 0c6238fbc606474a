"""What a chat's answer says besides the text: choices, predictions, metadata, running usage."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from server.schema.chat import ChatCompletion, ChatCompletionChunk
from tests.support.chat_client import PATH, assert_same, chunks, fake_body, joined, whole
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

WEATHER = {"type": "function", "function": {"name": "weather"}}
CALL = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def max_seq_len() -> int:
    return 1024


@pytest.fixture
def fake(shared_fake: FakeEngine) -> FakeEngine:
    return shared_fake


@pytest.fixture
def fake_server(fake: FakeEngine, shared_server: LiveServer) -> LiveServer:
    return shared_server


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me a story about a cat."}]
    return {"model": "soliton-default", "messages": messages, "max_tokens": 20, **fields}


def texts(answer: Any) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_choices_have_random_numbers_of_their_own(server: LiveServer) -> None:
    asked = body(n=3, temperature=1, seed=5, logprobs=True)
    answer = whole(server, asked)
    assert len(set(texts(answer))) == 3
    assert_same(chunks(server, asked), answer)
    assert texts(whole(server, body(temperature=1, seed=5))) == texts(answer)[:1]
    assert answer["usage"]["completion_tokens"] == 60
    assert answer["usage"]["prompt_tokens"] == whole(server, body())["usage"]["prompt_tokens"]


def test_choices_come_one_after_another_each_with_its_role(fake_server: LiveServer) -> None:
    stream = chunks(
        fake_server, fake_body(n=3, max_tokens=4, stream_options={"include_usage": True})
    )
    assert stream[-1]["choices"] == []
    indices = [chunk["choices"][0]["index"] for chunk in stream[:-1]]
    assert indices == sorted(indices)
    for index in range(3):
        built = joined(stream, index)
        assert built["message"]["role"] == "assistant"
        assert built["finish_reason"] == "length"
    assert stream[-1]["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("n", [0, -1, 129])
def test_a_number_of_choices_that_cannot_be_is_refused(fake_server: LiveServer, n: int) -> None:
    answer = fake_server.post(PATH, fake_body(n=n))
    assert (answer.status, answer.error["param"]) == (400, "n")


@pytest.mark.parametrize("parts", [False, True])
def test_a_prediction_changes_no_text_and_is_counted(
    bundled_engine: Engine, server: LiveServer, parts: bool
) -> None:
    plain = whole(server, body(temperature=0, max_tokens=40))
    text = plain["choices"][0]["message"]["content"]
    content = [{"type": "text", "text": each} for each in (text[:9], text[9:])] if parts else text
    predicted = whole(
        server,
        body(temperature=0, max_tokens=40, prediction={"type": "content", "content": content}),
    )
    assert texts(predicted) == [text]
    details = predicted["usage"]["completion_tokens_details"]
    n_ids = len(bundled_engine.tokenizer.encode(text, add_special_tokens=False))
    accepted = details["accepted_prediction_tokens"]
    assert accepted + details["rejected_prediction_tokens"] <= n_ids


def test_metadata_stands_where_clients_bear_it(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = b"one two"
    asked = fake_body(
        include=["token_ids", "entropy", "time", "stop", "seed", "timings", "prompt"],
        stop="two", top_logprobs=1, logprobs=True,
    )  # fmt: skip
    answer = whole(fake_server, asked)
    choice = answer["choices"][0]
    assert [entry["token_id"] for entry in choice["logprobs"]["content"]] == list(b"one ")
    assert {"entropy", "time_ms"} <= set(choice["logprobs"]["content"][0])
    assert choice["stop_detail"]["string"] == choice["stop_reason"] == "two"
    assert choice["prompt"]["text"] == "user: hello\nassistant: "
    assert answer["timings"]["predicted_n"] == answer["usage"]["completion_tokens"]
    first, *middle, last, closing = chunks(fake_server, asked)
    assert first["choices"][0]["prompt"] == choice["prompt"]
    assert last["choices"][0]["stop_detail"] == choice["stop_detail"]
    assert closing["choices"] == []
    assert "timings" in closing
    for chunk in (first, *middle, last):
        assert set(chunk["choices"][0]["delta"]) <= {"role", "content"}


def test_metadata_of_tokens_needs_no_logprobs(fake_server: LiveServer) -> None:
    answer = whole(fake_server, fake_body(max_tokens=2, include=["rank"]))
    entries = answer["choices"][0]["logprobs"]["content"]
    assert [entry["rank"] for entry in entries] == [0, 0]
    answer = fake_server.post(PATH, fake_body(include=["colour"]))
    assert (answer.status, answer.error["param"]) == (400, "include")


def test_token_ids_are_of_every_token(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = CALL.encode()
    asked = fake_body(tools=[WEATHER], return_token_ids=True)
    answer = whole(fake_server, asked)
    choice = answer["choices"][0]
    assert bytes(choice["token_ids"][:-1]) == CALL.encode()
    stream = chunks(fake_server, asked)
    pieces = [chunk["choices"][0] for chunk in stream]
    assert [id_ for each in pieces for id_ in each.get("token_ids", ())] == choice["token_ids"]
    assert bytes(answer["prompt_token_ids"]).startswith(b"user: ")
    assert stream[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    assert not any("prompt_token_ids" in each for each in (choice, *stream[1:], *pieces))


def test_the_ids_of_the_prompt_come_once_for_all_choices(fake_server: LiveServer) -> None:
    asked = fake_body(return_token_ids=True, n=2, max_tokens=2, no_such_field=1)
    options = {"stream_options": {"continuous_usage_stats": True}}
    first, *others = chunks(fake_server, {**asked, **options})
    assert first["prompt_token_ids"] == whole(fake_server, asked)["prompt_token_ids"]
    assert first["warnings"]
    assert not any("prompt_token_ids" in chunk for chunk in others)
    assert "prompt_token_ids" not in chunks(fake_server, fake_body(max_tokens=1))[0]


def test_tokens_can_be_named_by_their_ids(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = b"ab"
    asked = fake_body(return_tokens_as_token_ids=True, logprobs=True, top_logprobs=1, max_tokens=2)
    answer = whole(fake_server, asked)
    assert "warnings" not in answer
    entries = answer["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["token_id:97", "token_id:98"]
    assert [entry["bytes"] for entry in entries] == [[97], [98]]
    assert [entry["top_logprobs"][0]["token"] for entry in entries] == [
        "token_id:97",
        "token_id:98",
    ]
    assert_same(chunks(fake_server, asked), answer)


def test_usage_may_grow_with_every_chunk(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.writes(reasoning=True)
    fake.model.script = b"<think>hm</think>yes"
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = chunks(fake_server, fake_body(stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in stream]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert stream[-1]["usage"] == {**stream[-2]["usage"]}
    assert stream[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 17


def test_progress_is_reported_while_the_prompt_is_computed(fake_server: LiveServer) -> None:
    messages = [{"role": "user", "content": "x" * 300}]
    stream = chunks(fake_server, fake_body(messages=messages, max_tokens=1, include=["progress"]))
    told = [chunk for chunk in stream if "prompt_progress" in chunk]
    assert told
    assert all(chunk["choices"] == [] for chunk in told)
    assert told == stream[: len(told)], "before the first choice"


def test_a_stop_string_may_be_part_of_the_reply(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = b"one two three"
    asked = fake_body(stop="two", include_stop_str_in_output=True, logprobs=True)
    answer = whole(fake_server, asked)
    assert texts(answer) == ["one two"]
    assert_same(chunks(fake_server, asked), answer)


def test_the_schema_has_no_word_that_clients_would_sum() -> None:
    """Official clients add up numbers in a delta, and lists without an index break them."""
    properties = ChatCompletionChunk.model_json_schema()["$defs"]["Delta"]["properties"]
    for name, schema in properties.items():
        kinds = {each.get("type", "object") for each in schema["anyOf"]} - {"null"}
        assert kinds <= {"string", "object"} or name == "tool_calls"
    assert "index" in ChatCompletionChunk.model_json_schema()["$defs"]["ToolCallDelta"]["required"]
    assert "index" not in ChatCompletion.model_json_schema()["$defs"]["ToolCallAnswer"]["required"]
