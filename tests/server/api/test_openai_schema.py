"""Every answer and every chunk of OpenAI's routes, held against the types of the official client,
which are made of OpenAI's published schema: required keys, literals, kinds of values, unconverted.

Two values of /v1/completions are null at OpenAI too, which its schema does not know: the logprob of
an echoed prompt's first token, and `finish_reason` before the end of a stream.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}
CALL = (
    b'<think>hm</think><tool_call>\n{"name": "weather", "arguments": {"city": "Rom"}}\n</tool_call>'
)
SAY = [{"role": "user", "content": "hello"}]
ALL = {"include": ["entropy", "cache", "timings", "seed", "draft"]}
USAGE = {"stream_options": {"include_usage": True}}
CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
TOOLS = {"tools": [{"type": "function", "strict": False, **FUNCTION}]}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", {"prompt": "hello", "logprobs": 3}),
    "choices": ("/v1/completions", {"prompt": ["a", "b"], "n": 2, **ALL}),
    "chat": ("/v1/chat/completions", {"messages": SAY, "logprobs": True, "top_logprobs": 3, **ALL}),
    "call": ("/v1/chat/completions", {"messages": SAY, **CHAT_TOOLS}),
    "response": ("/v1/responses", {"input": "hello"}),
    "logprobs": (
        "/v1/responses",
        {"input": "hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    ),
    "function": ("/v1/responses", {"input": "hello", **TOOLS}),
}
WHOLE = {
    "/v1/completions": TypeAdapter[Any](Completion),
    "/v1/chat/completions": TypeAdapter[Any](ChatCompletion),
    "/v1/responses": TypeAdapter[Any](Response),
}
CHUNK = {
    "/v1/completions": TypeAdapter[Any](Completion),
    "/v1/chat/completions": TypeAdapter[Any](ChatCompletionChunk),
    "/v1/responses": TypeAdapter[Any](ResponseStreamEvent),
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    fake = FakeEngine(max_seq_len=2048)
    fake.writes(reasoning=True)
    fake.model.script = CALL
    with live_server(fake.as_engine) as server:
        yield server


@pytest.mark.parametrize("name", BODIES)
def test_a_whole_answer_is_as_published(server: LiveServer, name: str) -> None:
    path, body = BODIES[name]
    answer = server.post(path, {**body, "max_tokens": 100} if "prompt" in body else body)
    assert answer.status == 200, answer.body
    WHOLE[path].validate_json(answer.body, strict=True)


@pytest.mark.parametrize("name", BODIES)
def test_each_chunk_is_as_published(server: LiveServer, name: str) -> None:
    path, body = BODIES[name]
    more = {"max_tokens": 100} if "prompt" in body else {}
    usage = {} if path == "/v1/responses" else USAGE
    answer = server.post(path, {**body, **more, **usage, "stream": True})
    chunks = parse_event_stream(answer.body).chunks
    assert len(chunks) > 5
    for chunk in chunks:
        for choice in chunk["choices"] if path == "/v1/completions" else ():
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        CHUNK[path].validate_json(json.dumps(chunk), strict=True)


def test_the_types_refuse_what_is_not_published(server: LiveServer) -> None:
    path, body = BODIES["chat"]
    (chunk, *_) = parse_event_stream(server.post(path, {**body, "stream": True}).body).chunks
    for wrong in ({"created": "1"}, {"object": "chunk"}, {"choices": None}):
        with pytest.raises(ValueError, match="validation error"):
            CHUNK[path].validate_json(json.dumps({**chunk, **wrong}), strict=True)


def test_the_models_are_as_published(server: LiveServer) -> None:
    for card in server.get("/v1/models").json["data"]:
        TypeAdapter(Model).validate_json(json.dumps(card), strict=True)
