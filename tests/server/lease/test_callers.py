"""Callers with their own keys: nothing kept for one is used for, or shown to, another."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server

COMPLETIONS = "/v1/completions"
KEYS = ("key-of-anna", "key-of-ben")
SECRET = "Anna's secret is that she likes a number, and that the number is 4711. "


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Engine:
    """Keeps copies of past sequences in memory and on disk, and makes drafts of answers."""
    return Engine.load(
        tiny_model,
        device="cpu",
        dtype="float32",
        speculate="ngram",
        prefix_bytes=2**24,
        prefix_directory=tmp_path_factory.mktemp("prefixes"),
    )


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine, api_keys=KEYS) as server:
        yield server


def completed(server: LiveServer, key: str, prompt: str, **fields: Any) -> Any:
    body = {"model": "tiny-llama", "prompt": prompt, "max_tokens": 4, "temperature": 0}
    answer = server.post(COMPLETIONS, {**body, **fields}, authorization=f"Bearer {key}")
    assert answer.status == 200, answer.body
    return answer.json


def n_cached(server: LiveServer, key: str, prompt: str, **fields: Any) -> int:
    usage = completed(server, key, prompt, **fields)["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


def test_a_prompt_is_reused_for_its_own_key_only(server: LiveServer) -> None:
    anna, ben = KEYS
    prompt = 3 * SECRET
    assert n_cached(server, anna, prompt) == 0
    assert n_cached(server, ben, prompt) == 0, "it is in the active sequence"
    n_own = n_cached(server, anna, prompt)
    assert n_own > 0, "it is in memory"
    assert n_cached(server, ben, prompt) == n_own, "now it is Ben's too"
    assert n_cached(server, ben, prompt, cache_salt="x") == 0


@pytest.mark.parametrize("first", "abcdef")
@pytest.mark.parametrize("salt", [{}, {"cache_salt": "same"}])
def test_no_beginning_of_anothers_prompt_can_be_found_by_trying(
    server: LiveServer, first: str, salt: dict[str, str]
) -> None:
    anna, ben = KEYS
    completed(server, anna, first + SECRET, **salt)
    fields = {"include": ["cache"], "max_tokens": 1, **salt}
    told = completed(server, ben, first + SECRET[:-8] + "?", **fields)["choices"][0]["cache"]
    assert told["reused"] <= 1, "what all texts begin with, at most"
    assert not told["known"] or not told["known"].startswith(SECRET[-8:-4])


def test_drafts_come_from_answers_to_the_same_key_only(tiny_model: Path) -> None:
    engine = Engine.load(tiny_model, device="cpu", dtype="float32", speculate="ngram")
    assert engine.speculator is not None
    fields = {"max_tokens": 60, "include": ["draft"], "logprobs": 1}
    with live_server(engine, api_keys=KEYS) as server:

        def n_pooled(key: str, **more: Any) -> int:
            choice = completed(server, key, "Tell it.", **fields, **more)["choices"][0]
            assert choice["text"] == text
            return str(choice).count("'origin': 'pool'")

        text = completed(server, KEYS[0], "Tell it.", max_tokens=60)["choices"][0]["text"]
        assert n_pooled(KEYS[1]) == 0, "the answer is Anna's"
        assert n_pooled(KEYS[0], cache_salt="other") == 0
        assert n_pooled(KEYS[0]) > 0
        assert n_pooled(KEYS[1]) > 0, "now it is Ben's too"


def test_one_key_is_one_caller() -> None:
    with live_server(FakeEngine().as_engine, api_keys=KEYS[:1]) as server:
        assert n_cached(server, KEYS[0], SECRET, model="fake") == 0
        assert n_cached(server, KEYS[0], SECRET, model="fake") == len(SECRET) - 1


def test_requests_with_the_same_ids_are_not_mixed_up() -> None:
    prompts = [f"{number} of many: " for number in range(24)]

    with live_server(FakeEngine().as_engine, api_keys=KEYS) as server:

        def text_of(number: int) -> str:
            body = {
                "model": "fake", "prompt": prompts[number], "max_tokens": 12, "user": "same",
                "seed": 7, "request_id": "same", "session_id": "same", "prompt_cache_key": "same",
            }  # fmt: skip
            headers = {
                "authorization": f"Bearer {KEYS[number % 2]}",
                "x-request-id": "same",
                "idempotency-key": "same",
            }
            answer = server.post(COMPLETIONS, body, **headers)
            assert answer.headers["x-request-id"] == "same"
            return str(answer.json["choices"][0]["text"])

        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(text_of, range(len(prompts))))
    assert texts == [fake_reply(prompt, 12) for prompt in prompts]
