"""A stream that describes tokens has one event per token, drafted or not: the text of an event and
the first entry of its logprobs, which web pages read, belong to the same token.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import DEFAULT_MODEL, Engine
from tests.engine.draft.test_speculation import load_drafting
from tests.support import chat_client
from tests.support.completion_calls import complete, joined, request, stream
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

TEXT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the sun."
PREDICTION = {"type": "content", "content": "one two three"}

PER_TOKEN: list[dict[str, Any]] = [
    {"logprobs": 3},
    {"logprobs": 0},
    {"n_probs": 2},
    {"include": ["rank"]},
    {"include": ["time"]},
    {"include": ["draft", "probs"], "logprobs": 1},
    {"return_tokens": True},
    {"post_sampling_probs": True},
    {"return_token_ids": True},
]


@pytest.fixture(scope="module")
def drafting() -> Iterator[LiveServer]:
    # No clock decides how long a draft is.
    with live_server(load_drafting(DEFAULT_MODEL, speculate="ngram")) as server:
        complete(server, request(max_tokens=40))  # from here on the text is known
        yield server


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def fake_server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def page_reads_completions(chunks: list[Any]) -> list[tuple[str, dict[str, float]]]:
    """Reads /v1/completions as mikupad and SillyTavern do: an event is a token, its text the
    token's name, and the first entry of `top_logprobs` the token's alternatives.
    """
    seen = []
    for chunk in chunks:
        choice = (chunk["choices"] or [{}])[0]
        if choice.get("text") and choice["logprobs"] and choice["logprobs"]["top_logprobs"]:
            seen.append((choice["text"], choice["logprobs"]["top_logprobs"][0]))
    return seen


def page_reads_chats(chunks: list[Any]) -> list[tuple[str, list[Any]]]:
    """The same for chats."""
    seen = []
    for chunk in chunks:
        choice = (chunk["choices"] or [{}])[0]
        text = choice.get("delta", {}).get("content")
        if text:
            seen.append((text, choice["logprobs"]["content"][0]["top_logprobs"]))
    return seen


def accepted(chunks: list[Any]) -> int:
    counts: dict[str, int] = chunks[-1]["speculation"]
    return counts["accepted"]


def test_a_page_finds_the_alternatives_of_each_drafted_token(drafting: LiveServer) -> None:
    body = request(max_tokens=40, logprobs=3, include=["speculation"])
    logprobs = complete(drafting, body)["choices"][0]["logprobs"]
    chunks = stream(drafting, body)
    assert accepted(chunks) >= 20, "most of the text was drafted"
    expected = zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    assert page_reads_completions(chunks) == list(expected)


def test_a_page_finds_the_alternatives_of_each_token_of_a_chat(drafting: LiveServer) -> None:
    body = {
        "model": "soliton-default", "temperature": 0, "max_tokens": 30, "logprobs": True,
        "top_logprobs": 3, "include": ["speculation"],
        "messages": [{"role": "user", "content": "Tell me a story."}],
    }  # fmt: skip
    answer = chat_client.whole(drafting, body)
    chunks = chat_client.chunks(drafting, body)
    assert accepted(chunks) >= 10
    entries = answer["choices"][0]["logprobs"]["content"]
    shown = [(entry["token"], entry["top_logprobs"]) for entry in entries if entry["bytes"]]
    assert page_reads_chats(chunks) == shown


@pytest.mark.parametrize("fields", PER_TOKEN, ids=str)
def test_whatever_describes_tokens_gives_each_its_event(
    drafting: LiveServer, fields: dict[str, Any]
) -> None:
    fields = {**fields, "include": [*fields.get("include", ()), "speculation"]}
    chunks = stream(drafting, request(max_tokens=40, **fields))
    assert accepted(chunks) >= 20
    pieces = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert len(pieces) == 40
    for piece in pieces:
        lists = piece["logprobs"] or {"token_ids": piece["token_ids"]}
        assert {len(values) for values in lists.values()} == {1}


def test_a_text_alone_comes_as_the_model_has_it(drafting: LiveServer) -> None:
    chunks = stream(drafting, request(max_tokens=40, include=["speculation"]))
    assert accepted(chunks) >= 20
    assert len(chunks) < 30, "the tokens of one pass share an event"


def test_events_of_one_pass_share_a_block(drafting: LiveServer) -> None:
    body = {**request(max_tokens=200, logprobs=1), "stream": True}
    complete(drafting, request(max_tokens=200))
    with drafting.send("/v1/completions", body) as sock:
        blocks: list[bytes] = []
        while not blocks or b"data: [DONE]" not in blocks[-1]:
            blocks.append(sock.recv(65536))
    assert len(blocks) < sum(block.count(b"data: {") for block in blocks)


def test_every_choice_of_every_prompt_comes_token_by_token(drafting: LiveServer) -> None:
    body = request(
        prompt=["Once upon a time", TEXT], n=2, max_tokens=12, echo=True, logprobs=1, seed=3,
        temperature=0.5,
    )  # fmt: skip
    chunks = stream(drafting, body)
    assert len(chunks) == 4 * 12
    for index in range(4):
        first, *others = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert len(first["logprobs"]["tokens"]) > 2, "the prompt's come with the first"
        for piece in others:
            assert piece["logprobs"]["tokens"] == [piece["text"]]
            assert len(piece["logprobs"]["text_offset"]) == 1
    assert joined(chunks) == complete(drafting, body)["choices"]


def test_the_usage_grows_by_one_token_per_event(drafting: LiveServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(drafting, request(max_tokens=20, logprobs=0, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [*range(1, 21), 20]


def test_a_forced_text_comes_token_by_token(drafting: LiveServer) -> None:
    fields = {"guided_choice": ["Once upon a time there was a dog."], "max_tokens": 40}
    plain = stream(drafting, request(**fields))
    chunks = stream(drafting, request(logprobs=2, **fields))
    assert len(plain) < len(chunks), "constraints draft"
    assert all(len(c["choices"][0]["logprobs"]["tokens"]) == 1 for c in chunks)


def test_tokens_of_held_text_come_one_by_one(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = b"a stork stops a stage"
    body = {"model": "fake", "prompt": "x", "max_tokens": 40, "logprobs": 1, "stop": ["stamp"]}
    chunks = stream(fake_server, body)
    seen = page_reads_completions(chunks)
    assert [text for text, _ in seen] == [*"a stork stops a stage"]
    assert all(text in top for text, top in seen)


def test_tokens_of_one_character_come_together(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.model.script = "hé🧀!".encode() + b"\xff\xe2\x82a"
    body = {"model": "fake", "prompt": "x", "logprobs": 1}
    for stop in (None, ["é🧀!?"]):
        pieces = [c["choices"][0] for c in stream(fake_server, {**body, "stop": stop})]
        texts = [piece["text"] for piece in pieces]
        assert texts == ["h", "é", "🧀", "!", "\ufffd", "\ufffda", ""]
        assert [len(piece["logprobs"]["tokens"]) for piece in pieces] == [1, 2, 4, 1, 1, 3, 1]


def test_text_before_its_token_waits_for_it(bundled_engine: Engine) -> None:
    """A stop string may begin inside a token."""
    body = request(max_tokens=30, logprobs=2)
    with live_server(bundled_engine) as server:
        logprobs = complete(server, body)["choices"][0]["logprobs"]
        longest = max(logprobs["tokens"], key=len)
        assert len(longest) > 3
        stops = [longest[2:] + "\0", longest[-1] + "\0", " \0"]
        seen = page_reads_completions(stream(server, {**body, "stop": stops}))
    assert seen == list(zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True))


def test_reasoning_and_calls_come_token_by_token(fake: FakeEngine, fake_server: LiveServer) -> None:
    fake.writes(reasoning=True)
    fake.model.script = b"<think>onetwo</think>one two three"
    body = chat_client.fake_body(
        logprobs=True, max_tokens=60, prediction=PREDICTION, include=["token_ids"]
    )
    answer = fake_server.post(chat_client.PATH, {**body, "stream": True})
    texts = []
    for chunk in parse_event_stream(answer.body).chunks:
        choice = chunk["choices"][0]
        for entries in (choice["logprobs"] or {}).values():
            assert len(entries or ()) <= 1 or not choice["delta"], "a mark has no text"
        texts.append(choice["delta"].get("content") or choice["delta"].get("reasoning") or "")
    assert [text for text in texts if text] == [*"onetwo", *"one two three"]
