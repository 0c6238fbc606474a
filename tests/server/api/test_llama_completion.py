"""POST /completion: what llama-server's clients read, of the same text as /v1/completions."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from server.schema.llama_completion import LlamaCompletion
from tests.support import completion_calls
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

STORY: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 12, "temperature": 0, "seed": 7}


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine, keep_streams="stored") as server:
        yield server


def whole(server: LiveServer, **fields: Any) -> Any:
    answer = server.post("/completion", {**STORY, **fields})
    assert answer.status == 200, answer.body
    for choice in answer.json if isinstance(answer.json, list) else [answer.json]:
        LlamaCompletion.model_validate(choice)
    return answer.json


def streamed(server: LiveServer, **fields: Any) -> list[Any]:
    """All events."""
    answer = server.post("/completion", {**STORY, **fields, "stream": True})
    assert answer.status == 200, answer.body
    parsed = parse_event_stream(answer.body)
    assert "[DONE]" not in parsed.data, "llama-server's clients read JSON in every event"
    for event in parsed.chunks:
        LlamaCompletion.model_validate(event)
    return parsed.chunks


def joined(events: list[Any], key: str) -> Any:
    parts = [event[key] for event in events if key in event]
    return "".join(parts) if key == "content" else [item for part in parts for item in part]


def test_it_writes_the_text_of_the_other_route(server: LiveServer) -> None:
    body = completion_calls.request(max_tokens=12, logprobs=2, return_token_ids=True)
    [choice] = completion_calls.complete(server, body)["choices"]
    answer = whole(server, n_probs=2, return_tokens=True)
    assert answer["content"] == choice["text"]
    assert answer["tokens"] == choice["token_ids"]
    entries = answer["completion_probabilities"]
    assert [entry["token"] for entry in entries] == choice["logprobs"]["tokens"]
    assert [entry["logprob"] for entry in entries] == choice["logprobs"]["token_logprobs"]
    assert [entry["id"] for entry in entries] == choice["token_ids"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (12, 4)


@pytest.mark.parametrize("fields", [{}, {"n_probs": 3}, {"stop": ["Lily", "girl"]}])
def test_the_events_add_up_to_the_whole(server: LiveServer, fields: dict[str, Any]) -> None:
    answer = whole(server, return_tokens=True, **fields)
    events = streamed(server, **fields)
    assert joined(events, "content") == answer["content"]
    assert joined(events, "tokens") == answer["tokens"]
    probabilities = joined(events, "completion_probabilities")
    assert probabilities == answer.get("completion_probabilities", [])
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    volatile = {"id", "content", "tokens", "timings", "tokens_cached", "completion_probabilities"}
    last = {key: value for key, value in events[-1].items() if key not in volatile}
    assert events[-1]["generation_settings"].pop("stream")
    assert not answer["generation_settings"].pop("stream")
    assert last == {key: value for key, value in answer.items() if key not in volatile}


def test_each_event_is_one_token_where_probabilities_are_asked_for(server: LiveServer) -> None:
    """Also of a text that is drafted whole, since it was written before."""
    streamed(server, n_predict=30)
    *events, _ = streamed(server, n_probs=1, n_predict=30)
    assert len(events) == 30
    assert all(len(event["completion_probabilities"]) == 1 for event in events)


def test_probabilities_after_sampling(server: LiveServer) -> None:
    answer = whole(server, n_probs=5, post_sampling_probs=True, temperature=1, top_k=2, seed=7)
    for entry in answer["completion_probabilities"]:
        tops = [top["prob"] for top in entry["top_probs"]]
        assert tops == sorted(tops, reverse=True)
        assert len(tops) <= 2, "top_k removed the others"
        assert math.isclose(sum(tops), 1, rel_tol=1e-4)
        assert entry["prob"] > 0
        assert "logprob" not in entry


def test_why_a_text_ended(server: LiveServer) -> None:
    assert whole(server)["stop_type"] == "limit"
    word = whole(server, stop=[" was"])
    assert (word["stop_type"], word["stopping_word"]) == ("word", " was")
    assert word["content"] == ", there"
    token = whole(server, stop_token_ids=[whole(server, return_tokens=True)["tokens"][2]])
    assert (token["stop_type"], token["stopping_word"]) == ("word", "")
    end = whole(server, grammar='root ::= "."')
    assert (end["content"], end["stop_type"]) == (".", "eos")


def test_a_text_ends_with_the_context_unless_told_earlier(server: LiveServer) -> None:
    for fields in ({"n_predict": None}, {"n_predict": -1}, {"n_predict": None, "max_tokens": -1}):
        answer = whole(server, ignore_eos=True, **fields)
        assert answer["tokens_predicted"] + answer["tokens_evaluated"] == 1024, fields
        assert (answer["truncated"], answer["stop_type"]) == (True, "limit")


def test_settings_and_prompt_are_told(server: LiveServer) -> None:
    answer = whole(server, seed=5, temperature=0.5, top_k=3, prompt=[587, 564])
    settings = answer["generation_settings"]
    assert (settings["seed"], settings["temperature"], settings["top_k"]) == (5, 0.5, 3)
    assert settings["n_predict"] == 12
    assert answer["prompt"] == "Once upon"
    again = whole(server, seed=5, temperature=0.5, top_k=3, prompt=[587, 564])
    assert again["content"] == answer["content"]
    assert (again["tokens_cached"], again["timings"]["cache_n"]) == (2 + 11, 1)


def test_a_bias_is_told_as_it_is_sent(server: LiveServer) -> None:
    """SillyTavern bans tokens so."""
    biases = [[27, False], [442, 2.5]]
    answer = whole(server, logit_bias=biases, return_tokens=True)
    assert answer["generation_settings"]["logit_bias"] == biases
    assert streamed(server, logit_bias=biases)[-1]["generation_settings"]["logit_bias"] == biases
    assert 27 not in answer["tokens"]


def test_several_texts_are_a_list(server: LiveServer) -> None:
    prompts = ["Once", "One day"]
    answers = whole(server, prompt=prompts)
    assert [(one["index"], one["prompt"]) for one in answers] == [(0, "Once"), (1, "One day")]
    drawn = whole(server, n_cmpl=2, temperature=1, seed=3)
    events = streamed(server, n=2, temperature=1, seed=3)
    for index, one in enumerate(drawn):
        own = [event for event in events if event["index"] == index]
        assert joined(own, "content") == one["content"]
        assert own[-1]["stop"]
    assert whole(server, prompt=["Once"])["index"] == 0, "one text is no list"


def test_what_include_names_is_there(server: LiveServer) -> None:
    names = ["rank", "entropy", "seed", "cache", "stop", "speculation", "timings"]
    answer = whole(server, include=names, seed=9)
    assert all({"rank", "entropy"} <= set(entry) for entry in answer["completion_probabilities"])
    assert answer["seed"] == 9
    assert answer["stop_detail"]["kind"] == "length"
    assert {"cache", "speculation", "timings"} <= set(answer)
    first, *_, last = streamed(server, include=names, seed=9)
    assert {"seed", "cache"} <= set(first)
    assert {"stop_detail", "speculation", "timings"} <= set(last)


def test_the_progress_of_a_prompt_is_told(server: LiveServer) -> None:
    events = streamed(server, prompt="A frog. " * 60, return_progress=True, n_predict=2)
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert progress[-1]["processed"] == progress[-1]["total"] == events[-1]["tokens_evaluated"]


def test_fields_without_effect_are_told(server: LiveServer) -> None:
    fields = {"cache_prompt": True, "id_slot": -1, "response_fields": [], "penalize_nl": False}
    assert "warnings" not in whole(server, **fields)
    first, second, *_ = streamed(server, min_keep=3, stream_options={"include_usage": True})
    assert {each["param"] for each in first["warnings"]} == {
        "min_keep", "stream_options.include_usage"
    }  # fmt: skip
    assert "warnings" not in second


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"n_predict": -2}, "n_predict"),
        ({"n_probs": 21}, "n_probs"),
        ({"n_probs": 3, "logprobs": 2}, "logprobs"),
        ({"n": 2, "n_cmpl": 3}, "n"),
        ({"n_cmpl": 0}, "n_cmpl"),
        ({"echo": True}, "echo"),
        ({"include": ["prompt"]}, "include"),
        ({"temperature": -1}, "temperature"),
        ({"stream_options": {}}, "stream_options"),
        ({"model": "another"}, "model"),
    ],
)
def test_wrong_bodies_are_refused_by_name(
    server: LiveServer, fields: dict[str, Any], param: str
) -> None:
    answer = server.post("/completion", {**STORY, **fields})
    assert answer.status in (400, 404)
    assert answer.error["param"] == param


def test_a_failure_in_mid_stream_is_an_event_without_an_end(
    fake: FakeEngine, fake_server: LiveServer
) -> None:
    fake.faults[3] = ZeroDivisionError()
    answer = fake_server.post("/completion", {"prompt": "hello", "stream": True, "n_predict": 9})
    events = parse_event_stream(answer.body).chunks
    assert (events[-1]["error"]["code"], events[-1]["error"]["type"]) == (500, "server_error")
    assert not any(event.get("stop") for event in events)


def test_a_kept_text_is_shown_and_branched(server: LiveServer) -> None:
    kept = whole(server, store=True, return_tokens=True)
    shown = server.get(f"/v1/streams/{kept['id']}").json
    assert shown["wire"] == "llama_completion"
    branch = server.post(f"/v1/streams/{kept['id']}/branch", {"at": 4, "n_predict": 6}).json
    LlamaCompletion.model_validate(branch)
    assert branch["branch"] == {"id": kept["id"], "at": 4}
    assert branch["content"] == whole(server, n_predict=6)["content"]
