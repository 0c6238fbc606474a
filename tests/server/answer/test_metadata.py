"""What `include` adds to an answer: on both routes, whole and streamed, and clients accept it."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from engine import DEFAULT_MODEL
from server.answer.metadata import REQUEST_NAMES, TOKEN_NAMES, Include
from server.errors import RequestError
from server.schema.chat import ChatCompletion, ChatCompletionChunk
from server.schema.common import GenerationRequest
from server.schema.completions import Completion
from tests.engine.draft.test_speculation import load_drafting
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import CHUNK, FakeEngine
from tests.support.live_server import LiveServer, live_server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MODEL = "soliton-default"
PROMPT = "Once upon a time"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": MODEL, "prompt": PROMPT},
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "A story, please."}]},
}
# What differs between two runs, and so between a stream and a whole answer.
CLOCKS = {"time_ms"}
# include -> the keys of a token.
KEYS = {
    "token_ids": {"token_id"},
    "bytes": {"bytes"},
    "probs": {"p_raw", "p_sampled"},
    "rank": {"rank"},
    "entropy": {"entropy"},
    "margin": {"margin"},
    "kept_mass": {"kept_mass"},
    "draft": {"draft"},
    "trace": {"trace"},
    "special": {"special"},
    "time": {"time_ms"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    # No clock decides how long a draft is.
    with live_server(load_drafting(DEFAULT_MODEL, dtype="auto", speculate="ngram")) as server:
        yield server


def body_of(path: str, **fields: Any) -> dict[str, Any]:
    return {**BODIES[path], "max_tokens": 24, "temperature": 0.9, "seed": 5, **fields}


def whole(server: LiveServer, path: str, **fields: Any) -> Any:
    answer = server.post(path, body_of(path, **fields))
    assert answer.status == 200, answer.body
    (Completion if path == COMPLETIONS else ChatCompletion).model_validate(answer.json)
    return answer.json


def streamed(server: LiveServer, path: str, **fields: Any) -> list[Any]:
    answer = server.post(path, body_of(path, **fields, stream=True))
    assert answer.status == 200, answer.body
    parsed = parse_event_stream(answer.body)
    assert parsed.data[-1] == "[DONE]"
    for chunk in parsed.chunks:
        (Completion if path == COMPLETIONS else ChatCompletionChunk).model_validate(chunk)
    return parsed.chunks


def tokens_of(path: str, choices: list[Any]) -> list[dict[str, Any]]:
    """The keys of each token, for the choices of one answer in either shape."""
    entries: list[dict[str, Any]] = []
    for choice in choices:
        logprobs = choice["logprobs"]
        if logprobs is None:
            continue
        if path == CHAT:
            entries += logprobs["content"]
        else:
            columns = zip(*logprobs.values(), strict=True)
            entries += [dict(zip(logprobs, column, strict=True)) for column in columns]
    return entries


def without(entries: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{key: value for key, value in e.items() if key not in names} for e in entries]


def choices_of(chunks: list[Any]) -> list[Any]:
    return [choice for chunk in chunks for choice in chunk["choices"]]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", TOKEN_NAMES)
def test_a_token_name_adds_its_keys_and_streamed_is_whole(
    server: LiveServer, path: str, name: str
) -> None:
    answer = whole(server, path, include=[name])
    entries = tokens_of(path, answer["choices"])
    plain = tokens_of(
        path, whole(server, path, logprobs=0 if path == COMPLETIONS else True)["choices"]
    )
    assert len(entries) == len(plain) > 0, "asking for it asks for entries"
    assert set(entries[0]) == set(plain[0]) | KEYS[name]
    chunks = streamed(server, path, include=[f"logprobs.{name}"])
    # The cache and the drafts know the text by now, so who drafted a token may differ.
    free = CLOCKS | {"draft"}
    assert without(tokens_of(path, choices_of(chunks)), free) == without(entries, free)


@pytest.mark.parametrize("path", BODIES)
def test_all_names_together_tell_what_the_engine_knows(server: LiveServer, path: str) -> None:
    fields: dict[str, Any] = (
        {"logprobs": 3} if path == COMPLETIONS else {"logprobs": True, "top_logprobs": 3}
    )
    answer = whole(server, path, include=[*TOKEN_NAMES, *REQUEST_NAMES], top_k=20, **fields)
    entries = tokens_of(path, answer["choices"])
    clocks = [entry["time_ms"] for entry in entries]
    assert clocks == sorted(clocks)
    assert 0 < clocks[0] <= clocks[-1]
    for entry in entries:
        logprob = entry["logprob" if path == CHAT else "token_logprobs"]
        assert math.exp(logprob) == pytest.approx(entry["p_raw"])
        assert 0 < entry["p_sampled"] <= 1
        assert 0 < entry["kept_mass"] <= 1
        assert entry["entropy"] >= 0
        assert entry["margin"] <= entry["p_raw"] or entry["rank"] > 0
        assert "top_k" in {step["stage"] for step in entry["trace"]}
        alternatives = entry["top_logprobs" if path == CHAT else "alternatives"]
        assert len(alternatives) == 3
        assert all(set(one) >= {"token_id", "bytes", "p_raw", "p_sampled"} for one in alternatives)
        assert alternatives[0]["p_raw"] >= alternatives[1]["p_raw"]
        for one in alternatives:
            assert one["token"] == bytes(one["bytes"]).decode()
    assert answer["choices"][0]["seed"] == 5
    assert answer["speculation"]["drafted"] >= answer["speculation"]["accepted"]


@pytest.mark.parametrize("path", BODIES)
def test_nothing_is_added_unless_asked_for(server: LiveServer, path: str) -> None:
    unasked: list[dict[str, Any]] = [{}, {"include": []}, {"include": None}]
    for fields in unasked:
        answer = whole(server, path, **fields)
        assert set(answer) == {
            "id", "object", "created", "model", "system_fingerprint", "choices", "usage"
        }  # fmt: skip
        assert answer["choices"][0]["logprobs"] is None
        assert not {"seed", "cache", "prompt", "stop_detail"} & set(answer["choices"][0])


@pytest.mark.parametrize("path", BODIES)
def test_what_a_choice_says_stands_in_its_first_and_its_last_chunk(
    server: LiveServer, path: str
) -> None:
    names = ["seed", "cache", "prompt", "stop"]
    answer = whole(server, path, include=names, n=2, stop=["zzz"])
    chunks = streamed(server, path, include=names, n=2, stop=["zzz"])
    for index in range(2):
        mine = [choice for choice in choices_of(chunks) if choice["index"] == index]
        told = answer["choices"][index]
        for key in ("seed", "prompt"):
            assert mine[0][key] == told[key]
            assert all(key not in choice for choice in mine[1:])
        assert set(mine[0]["cache"]) == set(told["cache"])
        assert mine[-1]["stop_detail"] == told["stop_detail"]
        assert all("stop_detail" not in choice for choice in mine[:-1])
    seeds = [choice["seed"] for choice in answer["choices"]]
    assert seeds[0] == 5
    assert seeds[1] != 5
    ids = answer["choices"][0]["prompt"]["token_ids"]
    back = server.post("/detokenize", {"tokens": ids}).json["prompt"]
    assert back == answer["choices"][0]["prompt"]["text"]
    assert len(ids) == answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", BODIES)
def test_timings_and_speculation_close_the_answer(server: LiveServer, path: str) -> None:
    names = ["timings", "speculation"]
    answer = whole(server, path, include=names)
    timings, usage = answer["timings"], answer["usage"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"]
    per_second = 1000 * timings["predicted_n"] / timings["predicted_ms"]
    assert timings["predicted_per_second"] == pytest.approx(per_second, rel=1e-3)
    assert timings["draft_n"] == answer["speculation"]["drafted"]
    for stream_options in ({}, {"include_usage": True}):
        chunks = streamed(server, path, include=names, stream_options=stream_options)
        assert chunks[-1]["choices"] == []
        assert set(chunks[-1]["timings"]) == set(timings)
        assert "speculation" in chunks[-1]
        assert ("usage" in chunks[-1]) == bool(stream_options)
        assert all("timings" not in chunk for chunk in chunks[:-1])


def test_speculation_says_who_drafted(server: LiveServer) -> None:
    body = {"prompt": "one two three " * 12, "temperature": 0, "ignore_eos": True}
    for _ in range(3):
        answer = whole(server, COMPLETIONS, **body, include=["speculation", "draft"], max_tokens=60)
    told = answer["speculation"]
    assert told["accepted"] > 0, "a text that repeats itself is guessed"
    by_origin = told["by_origin"]
    assert by_origin.keys() <= {"ngram", "pool"}, "out of this answer, or out of those before it"
    assert sum(each["accepted"] for each in by_origin.values()) == told["accepted"]
    assert sum(each["judged"] for each in by_origin.values()) <= told["drafted"]
    origins = [draft["origin"] for draft in answer["choices"][0]["logprobs"]["draft"]]
    for origin, counts in by_origin.items():
        assert origins.count(origin) == counts["accepted"]


def cache_of(server: LiveServer, prompt: str, **fields: Any) -> Any:
    answer = server.post(
        COMPLETIONS,
        {"model": "fake", "prompt": prompt, "max_tokens": 1, "include": ["cache"], **fields},
    )
    return answer.json["choices"][0]["cache"]


def test_a_cache_miss_is_explained_with_the_text_that_differs() -> None:
    with live_server(FakeEngine().as_engine) as server:
        assert cache_of(server, "It is 10:41 now.")["reason"] == "nothing cached"
        told = cache_of(server, "It is 10:42 now.")
        assert told["mismatch_at"] == told["reused"] == len("It is 10:4")
        assert told["reason"] == "differs at token 10"
        assert told["got"] == "2 now."
        assert told["known"] is None, "no caller has said whose text that is"
        salted = {"cache_salt": "mine"}
        cache_of(server, "It is 10:41 now.", **salted)
        assert cache_of(server, "It is 10:42 now.", **salted)["known"].startswith("1 now.")
        other = cache_of(server, "It is 10:42 now.", cache_salt="another")
        assert (other["reused"], other["known"]) == (0, None)


def test_prefill_reports_its_progress() -> None:
    prompt = "x" * (2 * CHUNK + 2)
    with live_server(FakeEngine().as_engine) as server:
        for path in BODIES:
            text = {"prompt": prompt} if path == COMPLETIONS else {}
            messages = {"messages": [{"role": "user", "content": prompt}]} if path == CHAT else {}
            body = {"model": "fake", "max_tokens": 1, "stream": True, **text, **messages}
            chunks = parse_event_stream(
                server.post(path, {**body, "include": ["progress", "prompt"]}).body
            ).chunks
            told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
            assert len(told) >= 3
            assert all(chunk["choices"] == [] for chunk in chunks if "prompt_progress" in chunk)
            assert [one["processed"] for one in told] == sorted(one["processed"] for one in told)
            total = told[0]["total"]
            assert {one["total"] for one in told} == {total}
            assert [one["processed"] for one in told[-2:]] == [total - 1, total]
            assert told[-1]["eta_ms"] == 0
            assert all(one["eta_ms"] > 0 for one in told[:-1])
            plain = parse_event_stream(server.post(path, body).body).chunks
            assert all(chunk["choices"] for chunk in plain), "and nothing that was not asked for"


def test_an_error_after_progress_is_an_event() -> None:
    fake = FakeEngine()
    fake.model.faults[0] = RuntimeError("planted")
    body = {"model": "fake", "prompt": "x" * 3 * CHUNK, "include": ["progress"], "stream": True}
    with live_server(fake.as_engine) as server:
        answer = server.post(COMPLETIONS, body)
    parsed = parse_event_stream(answer.body)
    assert answer.status == 200
    assert "prompt_progress" in parsed.chunks[0]
    assert parsed.chunks[-1]["error"]["code"] == "engine_error"
    assert "[DONE]" not in parsed.data


def test_the_reason_of_an_end_is_told_in_full() -> None:
    fake = FakeEngine()
    fake.model.script = b"one STOP two"
    with live_server(fake.as_engine) as server:

        def detail(**fields: Any) -> Any:
            body = {"model": "fake", "prompt": "x", "include": ["stop"], **fields}
            return server.post(COMPLETIONS, body).json["choices"][0]["stop_detail"]

        told = detail(stop=["STOP"])
        assert (told["kind"], told["string"]) == ("stop_string", "STOP")
        assert told["dropped_text"].startswith("STOP")
        assert bytes(told["dropped_token_ids"]).startswith(b"STOP")
        assert detail(max_tokens=3)["kind"] == "length"
        ended = detail(max_tokens=50)
        assert (ended["kind"], ended["token_id"]) == ("stop_token", 256)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    for wrong in (["nonsense"], ["rank", ""], ["logprobs."], ["logprobs.timings"]):
        with pytest.raises(RequestError, match="entropy") as refused:
            Include.of(wrong)
        assert refused.value.param == "include"
    with live_server(FakeEngine().as_engine) as server:
        for path in BODIES:
            body = {**BODIES[path], "model": "fake", "include": ["nonsense"]}
            for stream in (False, True):
                answer = server.post(path, {**body, "stream": stream})
                assert (answer.status, answer.error["param"]) == (400, "include")
                assert "nonsense" not in answer.error["message"]


def test_switches_of_other_servers_mean_the_same(server: LiveServer) -> None:
    switched = whole(server, CHAT, timings_per_token=True, post_sampling_probs=True)
    assert "timings" in switched
    assert "p_sampled" in switched["choices"][0]["logprobs"]["content"][0]


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        yield client


EVERYTHING = {"include": [*TOKEN_NAMES, *REQUEST_NAMES]}


def test_the_official_client_keeps_it_when_it_iterates(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=BODIES[CHAT]["messages"], max_tokens=12, seed=5, stream=True,
            logprobs=True, top_logprobs=2, extra_body=EVERYTHING,
        )
    )  # fmt: skip
    dumped = [chunk.model_dump() for chunk in chunks]
    entries = tokens_of(CHAT, choices_of(dumped))
    assert entries
    assert all({"token_id", "entropy", "draft", "trace"} <= set(entry) for entry in entries)
    assert all("p_sampled" in top for entry in entries for top in entry["top_logprobs"])
    first = next(choice for choice in choices_of(dumped))
    assert first["seed"] == 5
    assert dumped[-1]["timings"]["predicted_n"] > 0
    texts = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=12, logprobs=2, stream=True, extra_body=EVERYTHING
    )
    lists = [c.model_dump()["choices"][0]["logprobs"] for c in texts if c.choices]
    assert all(len(one["tokens"]) == len(one["entropy"]) for one in lists if one)


def test_the_stream_helper_of_the_official_client_accepts_it(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=BODIES[CHAT]["messages"], max_tokens=200, seed=5, logprobs=True,
        stop=["."], extra_body=EVERYTHING, stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        for _ in stream:
            pass
        final = stream.get_final_completion().model_dump()
    choice = final["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) > 3
    assert all(0 <= entry["margin"] <= 1 for entry in entries), "nothing was added up"
    assert choice["seed"] == 5, "the first chunk of a choice is kept as it is"
    assert final["usage"]["completion_tokens"] > 0
    plain = client.chat.completions.create(
        model=MODEL, messages=BODIES[CHAT]["messages"], max_tokens=200, seed=5, stop=["."]
    )
    assert choice["message"]["content"] == plain.choices[0].message.content


def test_metadata_of_the_prompt_stands_before_that_of_the_text(server: LiveServer) -> None:
    answer = whole(server, COMPLETIONS, echo=True, logprobs=1, include=["entropy", "time", "rank"])
    lists = answer["choices"][0]["logprobs"]
    n_prompt = answer["usage"]["prompt_tokens"]
    assert lists["time_ms"][:n_prompt] == [None] * n_prompt
    assert None not in lists["time_ms"][n_prompt:]
    assert lists["rank"][0] is None
    assert None not in lists["rank"][1:]
    assert len(lists["entropy"]) == len(lists["tokens"])


def test_the_documentation_names_what_may_be_included() -> None:
    docs = Path(__file__).parents[3] / "docs"
    text = "".join(path.read_text() for path in docs.glob("api*.md"))
    described = GenerationRequest.model_fields["include"].description or ""
    for name in (*TOKEN_NAMES, *REQUEST_NAMES):
        assert f"| `{name}` |" in text, f"include name {name}"
        assert re.search(rf"\b{name}\b", described), f"the contract should name {name}"
