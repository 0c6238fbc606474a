"""POST /v1/estimate: what a request would cost, without computing or touching anything."""

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine import Engine
from server.schema.estimate import Estimate
from tests.support.completion_calls import complete, request
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until
from tests.support.score_calls import scores

PATH = "/v1/estimate"
LONG = "Tom and Sam went to the park and played with a red ball. " * 10


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def estimated(server: LiveServer, body: dict[str, Any], **headers: str) -> Any:
    answer = server.post(PATH, body, **headers)
    assert answer.status == 200, answer.body
    Estimate.model_validate(answer.json)
    return answer.json


def counted(usage: Any) -> tuple[int, int]:
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"token_healing": True},
        {"prompt": ["Tom and", LONG, LONG + "The end"]},
        {"prompt": LONG, "n": 3},
        {"prompt": LONG, "cache_salt": "mine"},
        {"prompt": LONG, "echo": True, "logprobs": 1},
    ],
)
def test_it_counts_what_follows(server: LiveServer, fields: dict[str, Any]) -> None:
    body = {**request(max_tokens=4), **fields}
    for _ in range(2):
        said = estimated(server, body)
        again = estimated(server, body)
        n_prompt, n_cached = counted(complete(server, body)["usage"])
        assert said["prompt_tokens"] == n_prompt
        if not isinstance(body["prompt"], list):
            assert said["cached_tokens"] == again["cached_tokens"] == n_cached
        assert said["tokens_to_compute"] == said["prompt_tokens"] - said["cached_tokens"]
        n_choices = len(body["prompt"]) if isinstance(body["prompt"], list) else body.get("n", 1)
        assert said["max_tokens"] == 4 * n_choices
        assert said["queue"] == {"position": 0, "wait_ms": 0.0}


def test_a_conversation_is_estimated_too(server: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 3, "odd": 1}
    said = estimated(server, body)
    answer = server.post("/v1/chat/completions", body).json
    assert (said["prompt_tokens"], said["cached_tokens"]) == counted(answer["usage"])
    assert said["warnings"] == answer["warnings"]
    assert said["time_to_first_token_ms"] > 0
    assert said["time_per_token_ms"] > 0


def test_scores_are_estimated_too(server: LiveServer) -> None:
    body = {"prompt": LONG + "It was", "continuations": [" red", " blue and round"], "odd": 1}
    for _ in range(2):
        said = estimated(server, body)
        answer = scores(server, **body)
        n_scored = sum(len(score["tokens"]) for score in answer["scores"])
        n_prompt, n_cached = counted(answer["usage"])
        assert said["continuation_tokens"] == n_scored
        assert (said["prompt_tokens"], said["cached_tokens"]) == (n_prompt - n_scored, n_cached)
        assert said["tokens_to_compute"] == n_prompt - n_cached - 2, "of two passes the first token"
        assert said["max_tokens"] == 0
        assert said["warnings"] == answer["warnings"]
    assert said["time_to_first_token_ms"] is said["time_per_token_ms"] is None
    assert estimated(server, body)["time_ms"] > 0
    messages = [{"role": "user", "content": LONG}]
    chat = {"messages": messages, "continuations": [[5, 6], [7]]}
    said = estimated(server, chat)
    assert (said["continuation_tokens"], said["queue"]["position"]) == (3, 0)
    assert said["prompt_tokens"] + 3 == counted(scores(server, **chat)["usage"])[0]


def test_the_time_of_scores_is_learnt_from_scores(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server:
        body = {"prompt": "hello", "continuations": ["ab"]}
        assert estimated(server, body)["time_ms"] is None
        server.post("/v1/completions", {"prompt": "hello", "max_tokens": 3})
        assert estimated(server, body)["time_ms"] is None, "a generation says nothing of it"
        scores(server, **body)
        assert estimated(server, body)["time_ms"] > 0


def test_nothing_is_computed_and_the_cache_stays_as_it_was(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    body = {"prompt": "hello", "max_tokens": 3}
    said = estimated(shared_server, body)
    assert said["prompt_tokens"] == said["tokens_to_compute"] == 5
    assert shared_fake.model.n_prompts == 0
    complete(shared_server, body)
    for prompt in ("hello, and more", "another", "x" * 100):
        estimated(shared_server, {**body, "prompt": prompt})
    assert shared_fake.model.n_prompts == 1
    assert estimated(shared_server, body)["cached_tokens"] == 4, "all but the last"


def test_the_queue_is_counted(fake: FakeEngine) -> None:
    body = {"prompt": "hello", "max_tokens": 2}
    with live_server(fake.as_engine, api_keys=("one", "two")) as server:
        one, two = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
        server.post("/v1/completions", body, **one)
        fake.model.decode_gate.clear()
        answers: list[int] = []

        def ask() -> None:
            answers.append(server.post("/v1/completions", body, **one).status)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.lease.busy and server.lease.n_waiting == 2)
        own = estimated(server, body, **one)["queue"]
        other = estimated(server, body, **two)["queue"]
        assert (own["position"], other["position"]) == (3, 1), "keys take turns"
        assert own["wait_ms"] >= other["wait_ms"] >= 0
        assert server.lease.n_waiting == 2, "an estimate takes no place"
        fake.model.decode_gate.set()
        for thread in threads:
            thread.join()
        assert answers == [200] * 3
        assert estimated(server, body, **one)["queue"]["position"] == 0


def test_it_answers_while_the_engine_works(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.prefill_gate.clear()
    with fake_server.send("/v1/completions", {"prompt": "x" * 100, "max_tokens": 2}) as sock:
        wait_until(fake.model.in_prefill.is_set)
        assert estimated(fake_server, {"prompt": "hello"})["queue"]["position"] == 1
        fake.model.prefill_gate.set()
        assert read_answer(sock).status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "x" * 600}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"prompt": "a", "model": "another"}, "model"),
        ({"prompt": "a", "top_k": "5"}, "top_k"),
        ({"prompt": "a", "continuations": ["b", ""]}, "continuations[1]"),
        ({"prompt": "a", "continuations": "b"}, "continuations"),
        ({"messages": [], "continuations": ["b"]}, "messages"),
    ],
)
def test_what_would_be_refused_is_refused(
    shared_server: LiveServer, body: dict[str, Any], param: str
) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    path = "/v1/score" if "continuations" in body else path
    refused, real = shared_server.post(PATH, body), shared_server.post(path, body)
    assert (refused.status, refused.error) == (real.status, real.error)
    assert refused.error["param"] == param


@pytest.mark.clients
def test_the_official_client_sends_it(server: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        body = {"prompt": LONG, "max_tokens": 8}
        answer: Any = client.post("/estimate", body=body, cast_to=object)
        assert answer["max_tokens"] == 8
