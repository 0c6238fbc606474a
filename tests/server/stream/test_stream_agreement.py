"""Streamed and whole are one answer: text, ids, logprobs, offsets and usage, for any request, with
drafts and without.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import DEFAULT_MODEL, Engine
from tests.support.chat_client import assert_same, chunks
from tests.support.chat_client import whole as reply
from tests.support.completion_calls import complete, fake_request, joined, request, stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

USAGE = {"stream_options": {"include_usage": True}}
# Letters of the fake model, so that some texts contain them.
STOPS = ["a", "e", "st", "qu", "the", " and", ".", "é", "\ufffd"]
TOKEN_LISTS = ["token_ids", "bytes", "probs", "rank", "entropy", "margin", "kept_mass"]

RELAXED = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.fixture(scope="module", params=["off", "ngram", "draft"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate=request.param)
    with live_server(engine) as server:
        yield server


@pytest.fixture(scope="module")
def fake_server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


fields = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**53),
        "max_tokens": st.integers(0, 24),
        "n": st.integers(1, 3),
    },
    optional={
        "logprobs": st.integers(0, 3),
        "echo": st.booleans(),
        "stop": st.lists(st.sampled_from(STOPS), min_size=1, max_size=3, unique=True),
        "include_stop_str_in_output": st.booleans(),
        "banned_strings": st.lists(st.sampled_from(["a", "th", "zz"]), min_size=1, max_size=2),
        "token_healing": st.booleans(),
        "ignore_eos": st.booleans(),
        "return_token_ids": st.booleans(),
        "return_tokens_as_token_ids": st.booleans(),
        "prompt_logprobs": st.integers(0, 2),
        "skip_special_tokens": st.booleans(),
        "include": st.lists(st.sampled_from([*TOKEN_LISTS, "stop"]), unique=True, max_size=3),
    },
)
prompts = st.one_of(
    st.text(min_size=1, max_size=20),
    st.sampled_from(["Once upon a time", "Tim and Sue and Tim and Sue and Tim", "Käse 🧀 and"]),
)
prompt = st.one_of(
    prompts,
    st.lists(prompts, min_size=1, max_size=2),
    st.lists(st.integers(0, 255), min_size=1, max_size=12),
)


def agree(server: LiveServer, body: dict[str, Any]) -> Any:
    whole = complete(server, body)
    chunks = stream(server, {**body, **USAGE})
    assert joined(chunks) == whole["choices"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert chunks[-1]["usage"][name] == whole["usage"][name]
    return whole


@settings(RELAXED, max_examples=60)
@given(prompt, fields, st.sampled_from([0, 0.7, 1.2]))
def test_streamed_and_whole_agree(
    server: LiveServer, prompt: Any, fields: dict[str, Any], temperature: float
) -> None:
    whole = agree(server, request(prompt=prompt, temperature=temperature, **fields))
    with_ids = [choice for choice in whole["choices"] if "token_ids" in choice]
    if with_ids:
        n_tokens = sum(len(choice["token_ids"]) for choice in with_ids)
        assert n_tokens == whole["usage"]["completion_tokens"]


chat_fields = st.fixed_dictionaries(
    {"seed": st.integers(0, 2**53), "max_tokens": st.integers(1, 24), "n": st.integers(1, 2)},
    optional={
        "top_logprobs": st.integers(0, 3),
        "stop": st.lists(st.sampled_from(STOPS), min_size=1, max_size=3, unique=True),
        "include_stop_str_in_output": st.booleans(),
        "banned_strings": st.lists(st.sampled_from(["a", "th", "zz"]), min_size=1, max_size=2),
        "prediction": st.just({"type": "content", "content": "Once upon a time, there was a boy."}),
        "guided_regex": st.sampled_from(["[a-c ]+d", "(yes|no|🧀)+", "[0-9]{2,5}"]),
        "include": st.lists(st.sampled_from(["token_ids", "rank", "probs", "stop"]), max_size=2),
    },
)


@settings(RELAXED, max_examples=40)
@given(prompts, chat_fields, st.sampled_from([0, 0.7, 1.2]))
def test_a_streamed_and_a_whole_reply_agree(
    server: LiveServer, content: str, fields: dict[str, Any], temperature: float
) -> None:
    body = {
        "model": "soliton-default", "messages": [{"role": "user", "content": content}],
        "temperature": temperature, "logprobs": True, **fields,
    }  # fmt: skip
    answer = reply(server, body)
    for choice in answer["choices"]:
        if not choice["logprobs"]["content"]:
            choice["logprobs"] = None  # a stream says nothing about no tokens
    streamed = chunks(server, {**body, **USAGE})
    assert_same(streamed, answer)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert streamed[-1]["usage"][name] == answer["usage"][name]


@settings(RELAXED, max_examples=120)
@given(prompt, fields, st.sampled_from([0, 1, 30]))
def test_streamed_and_whole_agree_on_any_bytes(
    fake_server: LiveServer, prompt: Any, fields: dict[str, Any], temperature: float
) -> None:
    agree(fake_server, fake_request(prompt=prompt, temperature=temperature, **fields))


@settings(RELAXED, max_examples=20)
@given(prompts, fields)
def test_the_usage_so_far_becomes_the_usage(
    fake_server: LiveServer, prompt: str, fields: dict[str, Any]
) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = fake_request(prompt=prompt, temperature=2, **fields, stream_options=options)
    *_, last, usage = stream(fake_server, body)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][name] == usage["usage"][name]


def test_drafts_change_nothing_in_the_answer() -> None:
    body = request(
        prompt=["Tim and Sue and Tim and Sue and", "One day"], n=2, max_tokens=40, echo=True,
        logprobs=2, return_token_ids=True, prompt_logprobs=1, temperature=1, seed=6,
        include=["rank", "entropy"],
    )  # fmt: skip
    answers = []
    for speculate in ("off", "ngram", "draft"):
        engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate=speculate)
        with live_server(engine) as server:
            answers.append(agree(server, body))
    for drafted in answers[1:]:
        assert drafted["choices"] == answers[0]["choices"]
