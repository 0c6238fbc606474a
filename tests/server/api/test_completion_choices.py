"""Several prompts, several choices, the best of them, and what the answer says about each."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine, derived_seed
from tests.support.completion_calls import (
    PATH,
    complete,
    fake_request,
    joined,
    refusal,
    request,
    stream,
)
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server, wait_until


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def texts(answer: Any) -> list[str]:
    assert [choice["index"] for choice in answer["choices"]] == [*range(len(answer["choices"]))]
    return [choice["text"] for choice in answer["choices"]]


def test_each_prompt_of_a_list_has_its_own_choices(shared_server: LiveServer) -> None:
    expected = [fake_reply(prompt, 6) for prompt in ("one", "two", "three")]
    prompts = ["one", "two", "three"]
    for prompt in (prompts, [list(text.encode()) for text in prompts]):
        answer = complete(shared_server, fake_request(prompt=prompt, max_tokens=6))
        assert texts(answer) == expected
        assert answer["usage"]["prompt_tokens"] == len("onetwothree")
        assert answer["usage"]["completion_tokens"] == 18
        chunks = stream(shared_server, fake_request(prompt=prompt, max_tokens=6))
        assert [choice["text"] for choice in joined(chunks)] == expected


def test_choices_are_numbered_through_all_prompts(shared_server: LiveServer) -> None:
    body = fake_request(prompt=["one", "two"], n=2, max_tokens=4)
    expected = [fake_reply(prompt, 4) for prompt in ("one", "one", "two", "two")]
    assert texts(complete(shared_server, body)) == expected
    chunks = stream(shared_server, {**body, "stream_options": {"include_usage": True}})
    assert [choice["text"] for choice in joined(chunks)] == expected
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]]
    assert reasons.count("length") == 4, "each choice says why it ended"
    assert [not chunk["choices"] for chunk in chunks].count(True) == 1, "one usage for all"
    assert chunks[-1]["usage"]["prompt_tokens"] == 6, "a prompt counts once"
    assert chunks[-1]["usage"]["completion_tokens"] == 16


def test_a_choice_has_the_text_of_its_own_seed(server: LiveServer) -> None:
    body = request(temperature=1, seed=5, max_tokens=12)
    several = texts(complete(server, {**body, "n": 4}))
    alone = [texts(complete(server, {**body, "seed": derived_seed(5, k)}))[0] for k in range(4)]
    assert several == alone
    assert len(set(several)) > 1
    assert [choice["text"] for choice in joined(stream(server, {**body, "n": 4}))] == several


def test_choices_without_a_seed_differ(server: LiveServer) -> None:
    answer = complete(server, request(temperature=1.2, max_tokens=20, n=4))
    assert len(set(texts(answer))) > 1


def test_all_choices_share_the_computed_prompt(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    prompt = "a prompt of some length"
    answer = complete(shared_server, fake_request(prompt=prompt, n=3, max_tokens=2))
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "of the first choice"
    body = fake_request(prompt=prompt, n=3, max_tokens=2, include=["cache"])
    choices = complete(shared_server, body)["choices"]
    assert [choice["cache"]["reused"] for choice in choices] == [len(prompt) - 1] * 3


def test_the_best_are_those_of_the_highest_mean_logprob(server: LiveServer) -> None:
    body = request(temperature=1.3, seed=3, max_tokens=10, logprobs=0)
    every = complete(server, {**body, "n": 6})
    chosen = complete(server, {**body, "n": 2, "best_of": 6})

    def mean(choice: Any) -> float:
        logprobs = choice["logprobs"]["token_logprobs"]
        return math.fsum(logprobs) / len(logprobs)

    ranked = sorted(every["choices"], key=mean, reverse=True)
    assert texts(chosen) == [choice["text"] for choice in ranked[:2]]
    assert chosen["choices"][0]["logprobs"] == ranked[0]["logprobs"]
    assert chosen["usage"]["completion_tokens"] == every["usage"]["completion_tokens"]


def test_best_of_that_chooses_nothing_is_n(server: LiveServer) -> None:
    body = request(temperature=1, seed=3, max_tokens=8, n=2)
    expected = texts(complete(server, body))
    assert texts(complete(server, {**body, "best_of": 2})) == expected
    assert [c["text"] for c in joined(stream(server, {**body, "best_of": 2}))] == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 65, "prompt": ["a", "b"]}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": 21}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 20, "prompt": ["a"] * 7}, "best_of"),
        ({"prompt": ["a"] * 129}, "n"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": [[1], [999]]}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a", "\ud800"]}, "prompt"),
        ({"echo": True, "suffix": "b"}, "echo"),
        ({"prompt": [1, 2], "suffix": "b"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"include": ["no such name"]}, "include"),
    ],
)
def test_what_cannot_be_served_names_its_field(
    shared_server: LiveServer, fields: dict[str, Any], param: str
) -> None:
    assert refusal(shared_server, fake_request(**fields)) == (400, param)


def test_an_answer_has_an_end() -> None:
    fake = FakeEngine(max_seq_len=8192)
    with live_server(fake.as_engine) as server:
        prompt = "x" * 5000
        several = fake_request(prompt=prompt, n=100, max_tokens=1, echo=True)
        assert complete(server, several)["usage"]["completion_tokens"] == 100
        assert refusal(server, {**several, "n": 128, "logprobs": 0}) == (400, "n")
        assert refusal(server, fake_request(n=128, max_tokens=8000)) == (400, "n")


def test_no_prompt_is_the_beginning_of_a_text(shared_server: LiveServer) -> None:
    body = {"model": "fake", "max_tokens": 3}
    answer = complete(shared_server, body)
    assert answer["usage"]["prompt_tokens"] == 1
    assert complete(shared_server, {**body, "prompt": None})["choices"] == answer["choices"]
    assert texts(complete(shared_server, {**body, "echo": True})) == texts(answer)


def test_the_stop_that_was_asked_for_is_named(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abcdef"
    for fields, reason in (
        ({"stop": ["x", "cd"]}, "cd"),
        ({"stop_token_ids": [ord("c")]}, ord("c")),
        ({"max_tokens": 2}, None),
        ({}, None),
    ):
        body = fake_request(**fields)
        assert complete(shared_server, body)["choices"][0]["stop_reason"] == reason
        *others, last = [chunk["choices"][0] for chunk in stream(shared_server, body)]
        assert last["stop_reason"] == reason
        assert not any("stop_reason" in choice for choice in others)


def test_the_stop_string_shows_when_that_is_asked_for(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abcdef"
    body = fake_request(stop="cd", include_stop_str_in_output=True, logprobs=0)
    choice = complete(shared_server, body)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abcd", "stop")
    assert choice["logprobs"]["tokens"] == [*"abcd"]
    assert joined(stream(shared_server, body)) == [choice]


def test_token_ids_are_those_of_prompt_and_completion(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abc"
    body = fake_request(return_token_ids=True)
    choice = complete(shared_server, body)["choices"][0]
    assert choice["prompt_token_ids"] == [*b"hello"]
    assert choice["token_ids"] == [*b"abc", 256], "the end too"
    assert choice["logprobs"] is None
    chunks = stream(shared_server, body)
    assert joined(chunks) == [choice]
    assert "prompt_token_ids" in chunks[0]["choices"][0]


def test_tokens_can_be_named_by_their_ids(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"ab"
    body = fake_request(return_tokens_as_token_ids=True, logprobs=1, max_tokens=2)
    lists = complete(shared_server, body)["choices"][0]["logprobs"]
    assert lists["tokens"] == ["token_id:97", "token_id:98"]
    assert [*lists["top_logprobs"][0]] == ["token_id:97"]


def test_the_usage_so_far_is_in_every_chunk(shared_server: LiveServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = fake_request(prompt=["one", "three"], n=2, max_tokens=3, stream_options=options)
    chunks = stream(shared_server, body)
    counted = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counted == [*range(1, 13), 12]
    assert [chunk["usage"]["prompt_tokens"] for chunk in chunks] == [3] * 6 + [8] * 7
    assert chunks[-2]["usage"] == chunks[-1]["usage"], "the last one is the whole"
    alone = {**body, "stream_options": {"continuous_usage_stats": True}}
    assert [chunk["usage"] for chunk in stream(shared_server, alone)] == [
        chunk["usage"] for chunk in chunks[:-1]
    ]


def test_metadata_implies_entries_and_stands_beside_them(shared_server: LiveServer) -> None:
    names = ["token_ids", "rank", "time", "seed", "stop", "timings"]
    body = fake_request(max_tokens=4, include=names, n=2)
    answer = complete(shared_server, body)
    for choice in answer["choices"]:
        lists = choice["logprobs"]
        assert lists["token_id"] == [*choice["text"].encode()]
        assert lists["rank"] == [0] * 4
        assert lists["time_ms"] == sorted(lists["time_ms"])
        assert choice["stop_detail"]["kind"] == "length"
        assert isinstance(choice["seed"], int)
    assert answer["timings"]["predicted_n"] == 8
    chunks = stream(shared_server, body)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["timings"]["predicted_n"] == 8
    for choice, alone in zip(joined(chunks), answer["choices"], strict=True):
        assert choice["logprobs"]["token_id"] == alone["logprobs"]["token_id"]
        assert choice["stop_detail"] == alone["stop_detail"]


def test_progress_is_reported_while_the_prompt_is_computed(shared_server: LiveServer) -> None:
    body = fake_request(prompt="x" * 100, max_tokens=2, include=["progress"], n=2)
    chunks = stream(shared_server, body)
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [progress["index"] for progress in told] == [0] * len(told)
    done = [progress["processed"] for progress in told]
    assert done == sorted(done)
    assert done[-2:] == [99, 100]
    assert len(joined(chunks)) == 2
    # Asked again, all but the last token is known.
    chunks = stream(shared_server, fake_request(**{**body, "n": 1}))
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [(one["cache"], one["processed"], one["total"]) for one in told] == [(99, 100, 100)]
    assert told[0]["eta_ms"] == 0


def test_a_bad_constraint_is_refused_before_the_queue(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.decode_gate.clear()
    with shared_server.send(PATH, fake_request()):
        shared_fake.model.in_decode.wait(10)
        assert refusal(shared_server, fake_request(guided_regex="(")) == (400, "guided_regex")
        shared_fake.model.decode_gate.set()


@pytest.mark.parametrize("name", ["min_tokens", "min_length"])
def test_a_choice_that_is_shorter_than_the_minimum_is_reported(
    shared_server: LiveServer, name: str
) -> None:
    body = fake_request(guided_choice=["maybe", "yes"], max_tokens=20)
    (warning,) = complete(shared_server, {**body, name: 4})["warnings"]
    assert warning["param"] == name
    assert "fewer tokens than 4: 3" in warning["message"]
    assert refusal(shared_server, {**body, name: 4, "strict": True}) == (400, name)
    assert "warnings" not in complete(shared_server, {**body, name: 3})
    free = fake_request(guided_regex="(maybe|yes)", max_tokens=20)
    assert "warnings" not in complete(shared_server, {**free, name: 3})


def test_a_constraint_ends_with_stop(shared_server: LiveServer) -> None:
    body = fake_request(guided_choice=["yes", "no"], max_tokens=20)
    answer = complete(shared_server, body)
    assert texts(answer)[0] in ("yes", "no")
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_text_that_cannot_go_on_was_filtered(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    body = fake_request(banned_strings=["a"], allowed_token_ids=[ord("a")], max_tokens=4)
    answer = complete(shared_server, body)
    assert answer["choices"][0]["finish_reason"] == "content_filter"
    assert texts(answer) == [""]


def test_the_engine_is_free_when_the_end_arrives(shared_fake: FakeEngine) -> None:
    with live_server(shared_fake.as_engine, max_queue=0) as server:
        for _ in range(40):
            assert server.post(PATH, fake_request(max_tokens=2)).status == 200
            chunks = stream(server, fake_request(max_tokens=2))
            assert joined(chunks)[0]["finish_reason"] == "length"


def test_a_hang_up_ends_all_choices(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    shared_fake.model.token_time = 0.005
    for streamed in (True, False):
        body = fake_request(n=50, max_tokens=20, stream=streamed)
        before = shared_fake.model.n_prompts
        with shared_server.send(PATH, body):
            wait_until(lambda n=before: shared_fake.model.n_prompts > n + 2)  # type: ignore[misc]
        wait_until(lambda: not shared_server.lease.busy)
        assert shared_fake.model.n_prompts < before + 20


def test_a_time_limit_ends_the_choice_with_what_it_has(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.token_time = 0.01
    body = fake_request(n=2, max_tokens=400, t_max_predict_ms=60, include=["stop"])
    choices = complete(shared_server, body)["choices"]
    for choice in choices:
        assert choice["finish_reason"] == "length"
        assert choice["stop_detail"]["kind"] == "time"
        assert 0 < len(choice["text"]) < 400
        assert fake_reply("hello", 400).startswith(choice["text"])


def test_only_the_end_of_a_long_prompt_is_used_when_that_is_asked_for(
    shared_server: LiveServer,
) -> None:
    body = fake_request(prompt="hello world", truncate_prompt_tokens=5, max_tokens=4, echo=True)
    assert texts(complete(shared_server, body)) == ["world" + fake_reply("world", 4)]
    body = fake_request(prompt="x" * 600, truncate_prompt_tokens=-1, max_tokens=12)
    assert complete(shared_server, body)["usage"]["prompt_tokens"] == 500
