"""Clients that people use, each in a process of its own, against a live server."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import DEFAULT_MODEL, Engine
from tests.support.client_process import API_KEY, run_node, run_python
from tests.support.live_server import LiveServer, live_server
from tests.support.lm_eval_tasks import TASKS, write_tasks
from tests.support.loglikelihood import loglikelihood
from tests.support.scripted_model import run, text_of

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

STORY = "Once upon a time"
N_TOKENS = 16


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine, api_keys=(API_KEY,)) as server:
        yield server


@pytest.fixture(scope="module")
def litellm(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_python("with_litellm", server, tmp_path_factory.mktemp("litellm"))


@pytest.fixture(scope="module")
def langchain(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_python("with_langchain", server, tmp_path_factory.mktemp("langchain"))


@pytest.fixture(scope="module")
def llm(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_python("with_llm", server, tmp_path_factory.mktemp("llm"))


@pytest.fixture(scope="module")
def instructor(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_python("with_instructor", server, tmp_path_factory.mktemp("instructor"))


@pytest.fixture(scope="module")
def vercel(server: LiveServer) -> Any:
    return run_node("vercel", server)


@pytest.fixture(scope="module")
def lm_eval(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("lm-eval")
    write_tasks(home)
    return run_python("with_lm_eval", server, home, str(DEFAULT_MODEL), str(home), *TASKS)


def greedy(engine: Engine, prompt: str, **options: Any) -> str:
    """What the engine itself writes, with the model's own penalties as on the server."""
    settings = replace(engine.default_settings, temperature=0.0)
    engine.generator.begin_stream_ex(engine.tokenizer.encode(prompt), settings, **options)
    return text_of(run(engine.generator))


def assert_animal(animal: Any) -> None:
    """Check that it fits the schema which the clients send."""
    assert len(animal["name"]) <= 12
    assert animal["legs"] in range(9)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_litellm_chats(litellm: Any, provider: str) -> None:
    seen = litellm[provider]
    assert len(seen["logprobs"]) == N_TOKENS
    assert "".join(seen["logprobs"]) == seen["whole"] == seen["streamed"]
    assert seen["finish_reason"] == "length"
    assert seen["streamed_usage"] == [seen["usage"]]


def test_langchain_chats(langchain: Any) -> None:
    seen = langchain["chat"]
    assert len(seen["tokens"]) == N_TOKENS
    assert "".join(seen["tokens"]) == seen["whole"] == seen["streamed"]
    assert seen["streamed_tokens"] == seen["tokens"]
    assert seen["finish_reason"] == "length"
    assert seen["streamed_usage"] == seen["usage"]


def test_langchain_reads_responses(langchain: Any) -> None:
    seen = langchain["responses"]
    assert seen["whole"] == seen["streamed"] == langchain["chat"]["whole"]
    assert seen["usage"] == N_TOKENS
    assert set(seen["parsed"]) == {"name", "legs"}


@pytest.mark.parametrize("client", ["litellm", "langchain"])
def test_both_complete(client: str, bundled_engine: Engine, request: Any) -> None:
    seen = request.getfixturevalue(client)["completion"]
    assert "".join(seen["tokens"]) == seen["whole"] == seen["streamed"]
    assert seen["usage"] == len(bundled_engine.tokenizer.encode(STORY)) + N_TOKENS


def test_litellm_tells_errors_apart(litellm: Any) -> None:
    assert litellm["errors"] == {
        "model": ["NotFoundError", 404],
        "context": ["ContextWindowExceededError", 400],
        "value": ["BadRequestError", 400],
        "key": ["AuthenticationError", 401],
    }


def test_langchain_tells_errors_apart(langchain: Any) -> None:
    assert langchain["errors"] == {
        "model": ["OpenAIModelNotFoundError", "model_not_found"],
        "context": ["OpenAIContextOverflowError", "context_length_exceeded"],
        "value": ["OpenAIInvalidRequestError", None],
        "key": ["OpenAIAuthenticationError", "invalid_api_key"],
    }


def test_llm_chats_as_a_command(llm: Any) -> None:
    assert llm["models"] == ["soliton-default"]
    assert llm["whole"].strip()
    assert llm["streamed"] == llm["whole"] == llm["chat"]["text"] + "\n"
    assert llm["chat"]["usage"] == N_TOKENS
    code, message = llm["error"]
    assert code == 1
    assert "model_not_found" in message


def test_llm_completes_with_alternatives(llm: Any) -> None:
    seen = llm["legacy"]
    entries = seen["json"]["logprobs"]
    assert len(entries) == N_TOKENS
    assert "".join(entry["text"] for entry in entries) == seen["text"]
    # One table per chunk: the three likeliest tokens and the chosen one.
    assert all(len(table) in (3, 4) for entry in entries for table in entry["top_logprobs"])


def test_vercel_chats(vercel: Any) -> None:
    whole, streamed = vercel["whole"], vercel["streamed"]
    assert whole["text"]
    assert streamed["text"] == whole["text"]
    assert streamed["finishReason"] == whole["finishReason"] == "length"
    assert whole["usage"]["outputTokens"] == N_TOKENS
    assert streamed["usage"]["totalTokens"] == whole["usage"]["totalTokens"]
    assert vercel["warnings"] == []


def test_vercel_completes(vercel: Any) -> None:
    whole, streamed = vercel["completion"], vercel["completionStreamed"]
    assert whole["text"]
    assert streamed["text"] == whole["text"]
    assert streamed["usage"]["totalTokens"] == whole["usage"]["totalTokens"]


def test_vercel_tells_errors_apart(vercel: Any) -> None:
    assert vercel["errors"] == [
        ["AI_APICallError", 404, "model_not_found", "model", False],
        ["AI_APICallError", 400, "context_length_exceeded", "messages", False],
        ["AI_APICallError", 400, None, "temperature", False],
    ]


def test_litellm_calls_tools(litellm: Any) -> None:
    seen = litellm["tools"]
    [[name, arguments]] = seen["calls"]
    assert name == "animal"
    assert_animal(json.loads(arguments))
    assert seen["streamed"] == [name, arguments]
    assert len(seen["ids"]) == 1, "the id comes once"
    assert seen["finish_reason"] == "tool_calls"


def test_litellm_gets_json(litellm: Any) -> None:
    seen = litellm["json"]
    assert_animal(json.loads(seen["whole"]))
    assert seen["streamed"] == seen["whole"]


def test_langchain_calls_tools(langchain: Any) -> None:
    seen = langchain["tools"]
    [[name, arguments]] = seen["calls"]
    assert name == "Animal"
    assert_animal(arguments)
    assert seen["streamed"] == seen["calls"]
    assert seen["finish_reason"] == "tool_calls"


def test_langchain_gets_objects(langchain: Any) -> None:
    seen = langchain["json"]
    assert_animal(seen["whole"])
    assert seen["streamed"] == seen["whole"]


def test_llm_gets_json(llm: Any) -> None:
    assert_animal(json.loads(llm["json"]))


@pytest.mark.parametrize(
    ("mode", "finish_reason"), [("tool_call", "tool_calls"), ("json_schema_mode", "stop")]
)
def test_instructor_gets_objects(instructor: Any, mode: str, finish_reason: str) -> None:
    seen = instructor[mode]
    # A growing object is requested with another schema, so it may be another object.
    for animal in (seen["whole"], seen["partial"]):
        assert_animal(animal)
        assert animal["mood"] in ("happy", "sad")
        assert all(len(friend) <= 12 for friend in animal["friends"])
        assert len(animal["friends"]) <= 2
    assert seen["finish_reason"] == finish_reason


def test_vercel_gets_objects(vercel: Any) -> None:
    assert_animal(vercel["object"])
    assert vercel["objectStreamed"] == vercel["object"]
    assert vercel["partialObjects"] > 1


def test_vercel_calls_tools(vercel: Any) -> None:
    [[name, arguments]] = vercel["calls"]
    assert name == "animal"
    assert_animal(arguments)
    assert vercel["callsStreamed"] == vercel["calls"]
    assert vercel["callsFinishReason"] == "tool-calls"


def test_lm_eval_generates_what_the_engine_does(lm_eval: Any, bundled_engine: Engine) -> None:
    samples = lm_eval["own"]["write"]
    assert len(samples) == 3
    for sample in samples:
        expected = greedy(bundled_engine, sample["doc"]["context"], max_new_tokens=24, stop=["."])
        assert sample["resps"] == [[expected]]


def test_lm_eval_scores_as_transformers_does(lm_eval: Any, bundled_engine: Engine) -> None:
    oracle: Any = AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)
    encode = bundled_engine.tokenizer.encode
    n_greedy = 0
    for sample in lm_eval["own"]["choose"]:
        for [context, ending], [[logprob, is_greedy]] in zip(
            sample["arguments"], sample["resps"], strict=True
        ):
            n_context, ids = len(encode(context)), encode(context + ending)
            expected, greedy_too = loglikelihood(oracle, ids, n_context)
            assert logprob == pytest.approx(expected, abs=1e-3)
            assert is_greedy == greedy_too
            n_greedy += is_greedy
    assert n_greedy, "one ending is what the model would say"


def test_lm_eval_gets_the_same_with_the_servers_tokenizer(lm_eval: Any) -> None:
    for task in TASKS:
        own, remote = lm_eval["own"][task], lm_eval["remote"][task]
        assert [sample["resps"] for sample in remote] == [sample["resps"] for sample in own]
