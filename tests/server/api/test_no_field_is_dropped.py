"""A field that no wire knows, put into each object of a body in turn: the answer names it.

The bodies have every kind of object that their wires have. Objects whose keys are the client's own,
such as JSON schemas, are left alone.
"""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

STRANGE = "x_unknown"
TOLD = re.compile(rb'"param": ?"([^"]*\.)?%b"' % STRANGE.encode())
# Objects whose keys are the client's own, or that a wire reads nothing of.
FREE = {
    "action", "arguments", "input_schema", "metadata", "output_schema", "parameters", "schema",
}  # fmt: skip
# `input` is a list of items in one wire, and the arguments of a call in another.
INPUT_OF_A_CALL = "input"

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "It.", "parameters": SCHEMA}
CALL = {"id": "a23456789", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
WATCH = [{"name": "a", "token_ids": [97]}]
STOP_WHEN = {"repeat": {"window": 8, "times": 50}}
SHARED: dict[str, Any] = {"max_tokens": 2, "watch": WATCH, "stop_when": STOP_WHEN}

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (
        "/v1/completions",
        {
            **SHARED,
            "prompt": "hello",
            "stream": True,
            "stream_options": {"include_usage": True},
            "response_format": {
                "type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA},
            },
        },
    ),
    "guided": ("/v1/completions", {"prompt": "x", "structured_outputs": {"choice": ["a"]}}),
    "chat": (
        "/v1/chat/completions",
        {
            **SHARED,
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "Be."}]},
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "content": "rain", "tool_call_id": CALL["id"]},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]},
        },
    ),
    "chat, some tools": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [{"type": "function", "function": FUNCTION}],
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "auto",
                    "tools": [{"type": "function", "function": {"name": "weather"}}],
                },
            },
            "max_tokens": 2,
        },
    ),
    "chat, functions": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "hello"},
                {
                    "role": "assistant",
                    "content": None,
                    "function_call": {"name": "weather", "arguments": "{}"},
                },
                {"role": "function", "name": "weather", "content": "rain"},
            ],
            "functions": [FUNCTION],
            "function_call": {"name": "weather"},
            "max_tokens": 2,
        },
    ),
    "response": (
        "/v1/responses",
        {
            **SHARED,
            "input": [
                {"type": "message", "role": "user",
                 "content": [{"type": "input_text", "text": "hello"}]},
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "h"}],
                 "content": [{"type": "reasoning_text", "text": "h"}]},
                {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c",
                 "output": [{"type": "input_text", "text": "rain"}]},
            ],
            "tools": [
                {"type": "function", **FUNCTION},
                {"type": "custom", "name": "shell",
                 "format": {"type": "grammar", "syntax": "regex", "definition": "[ab]"}},
                {"type": "namespace", "name": "n",
                 "tools": [{"type": "function", **FUNCTION}]},
            ],
            "tool_choice": {
                "type": "allowed_tools", "mode": "auto",
                "tools": [{"type": "function", "name": "weather"}],
            },
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        },
    ),
    "message": (
        "/v1/messages",
        {
            **SHARED,
            "system": [{"type": "text", "text": "Be."}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hello"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "h", "signature": "s"},
                    {"type": "tool_use", "id": "t", "name": "weather", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t",
                     "content": [{"type": "text", "text": "rain"}]},
                ]},
            ],
            "tools": [{"name": "weather", "input_schema": SCHEMA}],
            "tool_choice": {"type": "auto"},
            "thinking": {"type": "disabled"},
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    "tokens of a message": (
        "/v1/messages/count_tokens",
        {
            "messages": [{"role": "user", "content": "hello"}],
            "tools": [{"name": "weather", "input_schema": SCHEMA}],
            "tool_choice": {"type": "auto"},
        },
    ),
    "llama-server": (
        "/completion",
        {**SHARED, "prompt": [{"prompt_string": "hello"}, {"prompt_string": "x"}]},
    ),
    "Ollama, chat": (
        "/api/chat",
        {
            "model": "fake",
            "messages": [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "weather", "arguments": {}}}
                ]},
                {"role": "tool", "tool_name": "weather", "content": "rain"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "options": SHARED,
        },
    ),
    "Ollama, text": ("/api/generate", {"model": "fake", "prompt": "hello", "options": SHARED}),
    "Ollama, raw text": (
        "/api/generate", {"model": "fake", "prompt": "x", "raw": True, "options": SHARED},
    ),
    "TabbyAPI, tokens": ("/v1/token/encode", {"text": [{"role": "user", "content": "hello"}]}),
    "TabbyAPI, text": ("/v1/token/decode", {"tokens": [97]}),
}  # fmt: skip


ADMIN = "an-admin-s-key-of-this-test"
# Routes that have something done with what there is. STREAM stands for a stream that is kept.
ACTS: dict[str, dict[str, Any]] = {
    "/v1/streams/STREAM/peek": {"tokens": 2},
    "/v1/streams/STREAM/control": {"action": "pause"},
    "/v1/chat/completions/control": {"id": "STREAM", "action": "pause"},
    "/v1/chat/completions/STREAM": {"metadata": {}},
    "/slots/0?action=save": {"filename": "x"},
    "/v1/models/load": {"model": "fake"},
    "/v1/models/unload": {"model": "fake"},
    "/v1/model/load": {"model_name": "fake"},
    "/api/show": {"model": "fake"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    fake = FakeEngine(max_seq_len=4096)
    fake.writes(reasoning=True)
    fake.model.script = b"hello"
    slots = tmp_path_factory.mktemp("slots")
    with live_server(fake.as_engine, admin_keys=ADMIN, slot_save_path=slots) as server:
        yield server


@pytest.fixture(scope="module")
def stream(server: LiveServer) -> str:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "store": True}
    id_: str = server.post("/v1/chat/completions", body).json["id"]
    return id_


def objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each object in a body."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            if key not in FREE and not (key == INPUT_OF_A_CALL and isinstance(item, dict)):
                yield from objects(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from objects(item, (*path, i))


CASES = [(name, path) for name, (_, body) in BODIES.items() for path in objects(body)]


@pytest.mark.parametrize("name", BODIES)
def test_the_bodies_are_served(server: LiveServer, name: str) -> None:
    path, body = BODIES[name]
    answer = server.post(path, body)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("name", "where"), CASES, ids=[f"{name}-{'.'.join(map(str, path))}" for name, path in CASES]
)
def test_an_unknown_field_is_told(server: LiveServer, name: str, where: tuple[Any, ...]) -> None:
    path, body = BODIES[name]
    body = copy.deepcopy(body)
    inner: Any = body
    for key in where:
        inner = inner[key]
    inner[STRANGE] = 1
    answer = server.post(path, body)
    assert TOLD.search(answer.body), answer.body


@pytest.mark.parametrize("path", ACTS)
def test_what_is_done_has_no_unknown_field(server: LiveServer, stream: str, path: str) -> None:
    body = {name: stream if value == "STREAM" else value for name, value in ACTS[path].items()} | {
        STRANGE: 1
    }
    answer = server.post(path.replace("STREAM", stream), body, **{"x-admin-key": ADMIN})
    assert TOLD.search(answer.body) or b"x_unknown is no field" in answer.body, answer.body
