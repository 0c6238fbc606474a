"""Ollama's wire: what this server has of its own, and that no option is dropped in silence."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from server.answer.metadata import REQUEST_NAMES, TOKEN_NAMES
from server.schema.ollama import OllamaAnswer
from tests.support.live_server import LiveServer, live_server

CHAT, GENERATE = "/api/chat", "/api/generate"
GREEDY = {"temperature": 0, "num_predict": 6, "seed": 3}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": [{"role": "user", "content": "hello"}]}),
    "prompt": (GENERATE, {"prompt": "hello"}),
    "raw": (GENERATE, {"prompt": "Once upon a time there was " * 20, "raw": True}),
}


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine, keep_streams="all") as server:
        yield server


def asked(server: LiveServer, name: str, *, stream: bool, **options: Any) -> list[dict[str, Any]]:
    path, body = BODIES[name]
    more = {"model": "soliton-default", "stream": stream, "options": {**GREEDY, **options}}
    answer = server.post(path, {**body, **more})
    assert answer.status == 200, answer.body
    lines = [json.loads(line) for line in answer.body.splitlines()]
    for line in lines:
        OllamaAnswer.model_validate(line)
    return lines


@pytest.mark.parametrize("name", BODIES)
def test_what_include_names_is_there(server: LiveServer, name: str) -> None:
    """All of it, whole and streamed: a request to learn of, and one to learn it again."""
    include = [*TOKEN_NAMES, *REQUEST_NAMES]
    (whole,) = asked(server, name, stream=False, include=include)
    lines = asked(server, name, stream=True, include=include)
    first, *_, last = [line for line in lines if "prompt_progress" not in line]
    assert {"seed", "cache", "prompt"} <= set(first)
    assert {"stop_detail", "timings", "speculation"} <= set(last)
    assert set(first) | set(last) <= set(whole) | {"logprobs"}
    assert (whole["seed"], whole["prompt"]) == (first["seed"], first["prompt"])
    assert whole["stop_detail"] == last["stop_detail"]
    progress = [line["prompt_progress"] for line in lines if "prompt_progress" in line]
    assert progress[-1]["processed"] == progress[-1]["total"] == last["prompt_eval_count"]
    streamed = [entry for line in lines for entry in line.get("logprobs", ())]
    for entries in (whole["logprobs"], streamed):
        assert len(entries) == 6
        assert all({"entropy", "rank", "draft", "token_id", "time_ms"} <= set(e) for e in entries)


def test_a_banned_string_that_was_taken_back_is_told(server: LiveServer) -> None:
    (free,) = asked(server, "raw", stream=False)
    banned = {"banned_strings": [free["response"].split()[1]], "include": ["suppressed"]}
    (whole,) = asked(server, "raw", stream=False, **banned)
    lines = asked(server, "raw", stream=True, **banned)
    told = [each for line in lines for each in line.get("suppressed", ())]
    assert told == whole["suppressed"] != []
    assert "".join(line["response"] for line in lines) == whole["response"]


@pytest.mark.parametrize("name", BODIES)
def test_switches_of_other_servers_are_those_of_include(server: LiveServer, name: str) -> None:
    switches = {"return_tokens": True, "timings_per_token": True, "post_sampling_probs": True}
    (whole,) = asked(server, name, stream=False, n_probs=2, **switches)
    assert whole["timings"]["predicted_n"] == 6
    for entry in whole["logprobs"]:
        assert len(entry["top_logprobs"]) == 2
        assert {"token_id", "p_sampled"} <= set(entry)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n", 2), ("best_of", 3), ("echo", True), ("prompt_logprobs", 1),
        ("model", "x"), ("stream", False), ("messages", []), ("prompt", "x"),
    ],
)  # fmt: skip
def test_an_option_without_a_place_is_refused_by_name(
    server: LiveServer, name: str, option: str, value: Any
) -> None:
    path, body = BODIES[name]
    answer = server.post(path, {"model": "", **body, "options": {**GREEDY, option: value}})
    assert (answer.status, f"options.{option}" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize("name", BODIES)
def test_an_option_without_effect_is_told(server: LiveServer, name: str) -> None:
    options = {"store": True, "metadata": {"a": "b"}, "num_ctx": 99, "zap": 1, "num_thread": 4}
    (answer,) = asked(server, name, stream=False, **options)
    told = {warning["param"] for warning in answer["warnings"]}
    assert told == {"store", "metadata", "num_ctx", "zap"}
    path, body = BODIES[name]
    strict = {"model": "", **body, "options": {**GREEDY, "strict": True, "zap": 1}}
    assert server.post(path, strict).status == 400


@pytest.mark.parametrize(("field", "value"), [("template", "{{ x }}"), ("context", [1, 2])])
def test_what_would_change_the_prompt_is_refused(
    server: LiveServer, field: str, value: Any
) -> None:
    answer = server.post(GENERATE, {"model": "", "prompt": "x", field: value})
    assert (answer.status, field in answer.json["error"]) == (400, True)
