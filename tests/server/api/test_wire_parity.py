"""Logprobs as clients read them equal those of `transformers` on the bundled model."""

import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import DEFAULT_MODEL, Engine
from tests.support.chat_client import whole
from tests.support.completion_calls import complete, request
from tests.support.live_server import LiveServer, live_server

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def reference() -> Any:
    return AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)


def log_softmax(reference: Any, ids: list[int]) -> torch.Tensor:
    """Row i belongs to the token after the first i + 1."""
    with torch.no_grad():
        logits: torch.Tensor = reference(torch.tensor([ids])).logits[0]
    return torch.log_softmax(logits.double(), -1)


@pytest.mark.parametrize("speculate", ["off", "ngram", "draft"])
def test_echoed_and_generated_tokens(reference: Any, speculate: str) -> None:
    chance = random.Random(4)
    prompts: list[Any] = ["Once upon a time", "Tim and Sue and Tim and Sue and Tim", "Käse 🧀 and"]
    prompts += [[chance.randrange(4096) for _ in range(n)] for n in (1, 2, 40, 200)]
    engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate=speculate)
    with live_server(engine) as server:
        for seed, prompt in enumerate(prompts):
            body = request(
                prompt=prompt, temperature=seed % 2, seed=seed, max_tokens=24, echo=True,
                logprobs=5, return_token_ids=True, return_tokens_as_token_ids=True,
            )  # fmt: skip
            assert_lists_are_right(reference, complete(server, body)["choices"][0])


def assert_lists_are_right(reference: Any, choice: dict[str, Any]) -> None:
    ids = choice["prompt_token_ids"] + choice["token_ids"]
    lists, expected = choice["logprobs"], log_softmax(reference, ids)
    assert lists["tokens"] == [f"token_id:{token_id}" for token_id in ids]
    assert (lists["token_logprobs"][0], lists["top_logprobs"][0]) == (None, None)
    for i in range(1, len(ids)):
        row = expected[i - 1]
        assert lists["token_logprobs"][i] == pytest.approx(float(row[ids[i]]), abs=TOLERANCE)
        top = lists["top_logprobs"][i]
        for name, logprob in top.items():
            token_id = int(name.removeprefix("token_id:"))
            assert logprob == pytest.approx(float(row[token_id]), abs=TOLERANCE)
        assert max(top.values()) == pytest.approx(float(row.max()), abs=TOLERANCE)


def test_tokens_of_a_reply(reference: Any, bundled_engine: Engine) -> None:
    body = {
        "model": "soliton-default", "messages": [{"role": "user", "content": "Tell me a story."}],
        "temperature": 1, "seed": 5, "max_tokens": 60, "logprobs": True, "return_token_ids": True,
    }  # fmt: skip
    with live_server(bundled_engine) as server:
        assert_reply_is_right(reference, server, body)


def assert_reply_is_right(reference: Any, server: LiveServer, body: dict[str, Any]) -> None:
    answer = whole(server, body)
    [choice] = answer["choices"]
    prompt, ids = answer["prompt_token_ids"], choice["token_ids"]
    expected = log_softmax(reference, prompt + ids)[len(prompt) - 1 :]
    entries = choice["logprobs"]["content"]
    assert len(entries) >= len(ids) - 1, "all but a token that ends the reply"
    for entry, token_id, row in zip(entries, ids, expected, strict=False):
        assert entry["logprob"] == pytest.approx(float(row[token_id]), abs=TOLERANCE)
