"""`stop_when`: each condition ends the text before the first token at which it holds, drafted or
not, streamed or not.
"""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine import DEFAULT_MODEL, Engine, InvalidInputError, Repeat, StopWhen
from tests.support.chat_client import assert_same, chunks
from tests.support.chat_client import whole as reply
from tests.support.completion_calls import complete, joined, request, stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

BODY = request(
    prompt="Tom and Sue and Tom and Sue and Tom and", max_tokens=40, temperature=1, seed=4,
    logprobs=0, include=["entropy", "token_ids", "stop"],
)  # fmt: skip


@pytest.fixture(scope="module", params=["off", "ngram", "draft"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate=request.param)
    with live_server(engine) as server:
        yield server


def cut(server: LiveServer, body: dict[str, Any], n_tokens: int, kind: str) -> Any:
    """The choice that ends before token `n_tokens` of the same request without the condition."""
    whole = complete(server, {**body, "stop_when": None})["choices"][0]
    choice = complete(server, body)["choices"][0]
    ids = whole["logprobs"]["token_id"]
    assert choice["logprobs"]["token_id"] == ids[: n_tokens + 1], "the last one is not in the text"
    assert choice["text"] == "".join(whole["logprobs"]["tokens"][:n_tokens])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    detail = choice["stop_detail"]
    assert (detail["kind"], detail["token_id"], detail["string"]) == (kind, None, None)
    assert detail["dropped_token_ids"] == [ids[n_tokens]]
    assert joined(stream(server, body)) == [choice]
    # Nothing behind the token is seen without logprobs either.
    plain = {**body, "logprobs": None, "include": None}
    texts = [each["choices"][0]["text"] for each in stream(server, plain)]
    assert "".join(texts) == choice["text"]
    assert complete(server, plain)["choices"][0]["stop_detail"]["kind"] == kind
    return choice


def first(values: list[float], limit: float) -> int:
    return next(i for i, value in enumerate(values) if value > limit)


def test_entropy(server: LiveServer) -> None:
    entropies = complete(server, BODY)["choices"][0]["logprobs"]["entropy"]
    limit = sorted(entropies)[-4]
    body = {**BODY, "stop_when": {"entropy_gt": limit}}
    choice = cut(server, body, first(entropies, limit), "entropy_gt")
    assert choice["stop_detail"]["value"] == choice["logprobs"]["entropy"][-1] > limit


def test_the_mean_of_the_logprobs(server: LiveServer) -> None:
    values = complete(server, BODY)["choices"][0]["logprobs"]["token_logprobs"]
    means = [sum(values[: i + 1]) / (i + 1) for i in range(len(values))]
    limit = min(means[4:-1]) + 1e-6
    at = first([-mean if i >= 4 else -1e9 for i, mean in enumerate(means)], -limit)
    body = {**BODY, "min_tokens": 4, "stop_when": {"mean_logprob_lt": limit}}
    choice = cut(server, body, at, "mean_logprob_lt")
    assert choice["stop_detail"]["value"] == pytest.approx(means[at])


def test_the_probability_of_the_end(server: LiveServer) -> None:
    end_ids = server.get("/tokenizer_info").json["eos_token_ids"]
    watch = [{"name": "end", "token_ids": end_ids}]
    body = {**BODY, "prompt": "Hello", "max_tokens": 60, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False}  # fmt: skip
    lists = complete(server, {**body, "watch": watch})["choices"][0]["logprobs"]
    ends = [each["end"] for each in lists["watch"]]
    limit = sorted(ends)[-3] * 0.999
    at = first(ends, limit)
    body |= {"stop_when": {"p_eos_gt": limit}}
    choice = cut(server, body, at, "p_eos_gt")
    assert choice["stop_detail"]["value"] == pytest.approx(ends[at], rel=1e-5)


def test_a_loop(server: LiveServer) -> None:
    body = {**BODY, "temperature": 2, "allowed_tokens": [300, 301, 302], "max_tokens": 60}
    ids = complete(server, body)["choices"][0]["logprobs"]["token_id"]
    for window, times in ((1, 3), (4, 3), (30, 2)):
        at, period = next(
            (n - 1, p)
            for n in range(1, len(ids) + 1)
            for p in range(1, window + 1)
            if n >= p * times and ids[n - p * times : n] == ids[n - p : n] * times
        )
        repeat = {"window": window, "times": times}
        choice = cut(server, {**body, "stop_when": {"repeat": repeat}}, at, "repeat")
        assert choice["stop_detail"]["value"] == period


def test_time(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    shared_fake.model.token_time = 0.01
    body = {"prompt": "hello", "max_tokens": 400, "stop_when": {"seconds": 0.05}}
    choice = complete(shared_server, body)["choices"][0]
    assert (choice["finish_reason"], choice["stop_detail"]["kind"]) == ("length", "time")
    assert 1 <= len(choice["text"]) < 400
    same = complete(shared_server, {**body, "t_max_predict_ms": 50})["choices"][0]
    assert same["stop_detail"]["kind"] == "time"


def test_it_holds_with_bans_constraints_guidance_and_healing(server: LiveServer) -> None:
    others: list[dict[str, Any]] = [
        {"banned_strings": [" Sue", "."]},
        {"guided_regex": "( [a-z]+)+"},
        {"negative_prompt": "Once upon", "cfg_scale": 1.4},
        {"token_healing": True},
        {"stop": [" the", " a"]},
    ]
    for fields in others:
        body = {**BODY, **fields}
        logprobs = complete(server, body)["choices"][0]["logprobs"]
        entropies = logprobs["entropy"]
        limit = sorted(entropies)[len(entropies) // 2]
        at = first(entropies, limit)
        whole = complete(server, {**body, "stop_when": {"entropy_gt": limit}})["choices"][0]
        assert whole["logprobs"]["token_id"] == logprobs["token_id"][: at + 1], fields
        assert whole["stop_detail"]["kind"] in ("entropy_gt", "stop_string")
        assert joined(stream(server, {**body, "stop_when": {"entropy_gt": limit}})) == [whole]


def test_a_reply_ends_too(server: LiveServer) -> None:
    body = {
        "messages": [{"role": "user", "content": "A story, please."}],
        "temperature": 0, "max_tokens": 30, "logprobs": True, "include": ["entropy"],
    }  # fmt: skip
    entries = reply(server, body)["choices"][0]["logprobs"]["content"]
    limit = sorted(entry["entropy"] for entry in entries)[-3]
    body |= {"stop_when": {"entropy_gt": limit}}
    answer = reply(server, body)
    choice = answer["choices"][0]
    at = first([entry["entropy"] for entry in entries], limit)
    assert choice["logprobs"]["content"] == entries[:at]
    assert (choice["finish_reason"], choice["stop_detail"]["kind"]) == ("stop", "entropy_gt")
    assert_same(chunks(server, body), answer)


@pytest.mark.parametrize(
    ("stop_when", "param", "words"),
    [
        ({}, "stop_when", "asks for nothing"),
        ({"entropy_gt": -1}, "stop_when.entropy_gt", "between 0.0 and 100.0, not -1"),
        ({"mean_logprob_lt": 1}, "stop_when.mean_logprob_lt", "between -1000.0 and 0.0, not 1"),
        ({"p_eos_gt": 1.5}, "stop_when.p_eos_gt", "between 0.0 and 1.0, not 1.5"),
        ({"repeat": {}}, "stop_when.repeat.window", "missing"),
        ({"repeat": {"window": 0}}, "stop_when.repeat.window", "between 1 and 256, not 0"),
        ({"repeat": {"window": 4, "times": 1}}, "stop_when.repeat.times", "between 2 and 64"),
        ({"seconds": 0}, "stop_when.seconds", "greater than 0"),
        ({"entropy": 1, "p_eos_gt": 1}, "stop_when.entropy", "does not know"),
    ],
)
def test_wrong_conditions_are_said(
    shared_server: LiveServer, stop_when: dict[str, Any], param: str, words: str
) -> None:
    body = {"prompt": "hello", "stop_when": stop_when, "strict": True}
    answer = shared_server.post("/v1/completions", body)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert words in answer.error["message"]
    differs = {"prompt": "a", "stop_when": {"seconds": 1}, "t_max_predict_ms": 5}
    refused = shared_server.post("/v1/completions", differs)
    assert (refused.status, refused.error["param"]) == (400, "stop_when.seconds")


def test_the_engine_checks_its_own_option() -> None:
    with pytest.raises(InvalidInputError, match=r"repeat\.times must be between 2 and 64, not 1"):
        StopWhen(repeat=Repeat(4, 1))


@pytest.mark.clients
def test_the_official_client_sends_it(server: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.completions.create(
            model="soliton-default",
            prompt="Once upon a time",
            max_tokens=30,
            temperature=0,
            extra_body={"stop_when": {"entropy_gt": 0.01}},
        )
        detail: Any = answer.choices[0]
        assert detail.stop_detail["kind"] == "entropy_gt"
