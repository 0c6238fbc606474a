"""SmolLM2, a real model as a GGUF file, behind a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.chat_client import whole
from tests.support.client_process import API_KEY, run_python
from tests.support.live_server import LiveServer, live_server
from tests.support.lm_eval_tasks import write_tasks
from tests.support.loglikelihood import loglikelihood
from tests.support.smollm2 import smollm2, transformers_smollm2

TURNS = (
    "Hi! My name is Ada.",
    "I keep 3 otters. Name one animal that otters eat.",
    "And what do they drink?",
    "Write one line of Python that prints their number.",
    "Thanks. What is the capital of France?",
    "Is it on a river?",
    "Which colour is the sky?",
    "Count from one to five.",
    "What was my name?",
    "Good bye!",
)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(Engine.load(smollm2(), device="cpu")) as server:
        yield server


def said(server: LiveServer, messages: list[dict[str, str]], **fields: Any) -> tuple[str, Any]:
    """The reply, and the usage."""
    model = server.get("/v1/models").json["data"][0]["id"]
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 24, **fields}
    answer = whole(server, body)
    return answer["choices"][0]["message"]["content"], answer["usage"]


def n_cached(usage: Any) -> int:
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def test_each_turn_of_a_chat_finds_the_turns_before_it_computed(server: LiveServer) -> None:
    """With a salt of its own, a turn is answered as if there were no cache."""
    messages: list[dict[str, str]] = []
    n_before = 0
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        reply, usage = said(server, messages)
        assert n_before <= n_cached(usage) < usage["prompt_tokens"]
        n_before = usage["prompt_tokens"]
        messages.append({"role": "assistant", "content": reply})
    for i in range(1, len(messages), 2):
        reply, usage = said(server, messages[:i], cache_salt=f"turn {i}")
        assert n_cached(usage) == 0
        assert reply == messages[i]["content"]


@pytest.mark.clients
@pytest.mark.timeout(240)
def test_lm_eval_scores_as_transformers_does(tmp_path: Path) -> None:
    """The harness takes the server's tokenizer, for a GGUF file has no other."""
    write_tasks(tmp_path)
    engine = Engine.load(smollm2(), device="cpu", dtype="float32")
    with live_server(engine, api_keys=(API_KEY,)) as server:
        seen = run_python("with_lm_eval", server, tmp_path, "", str(tmp_path), "choose")
    encode = engine.tokenizer.encode
    n_greedy = 0
    for sample in seen["remote"]["choose"]:
        for [context, ending], [[logprob, is_greedy]] in zip(
            sample["arguments"], sample["resps"], strict=True
        ):
            n_context, token_ids = len(encode(context)), encode(context + ending)
            expected, greedy_too = loglikelihood(transformers_smollm2(), token_ids, n_context)
            assert logprob == pytest.approx(expected, abs=1e-3)
            assert is_greedy == greedy_too
            n_greedy += is_greedy
    assert 0 < n_greedy < 6, "some endings are what the model would say"
