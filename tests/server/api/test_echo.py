"""The prompt in the answer: its text, how likely its tokens were, and what scoring clients need."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.completion_calls import complete, fake_request, joined, refusal, request, stream
from tests.support.fake_engine import END, FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server

NAMES = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def scored(server: LiveServer, prompts: list[list[int]]) -> list[Any]:
    """What lm-evaluation-harness sends for loglikelihoods, and the choices that it reads."""
    body = {
        "model": "soliton-default", "prompt": prompts, "temperature": 0, "max_tokens": 1,
        "logprobs": 1, "seed": 1234, "echo": True,
    }  # fmt: skip
    choices: list[Any] = complete(server, body)["choices"]
    assert [choice["index"] for choice in choices] == [*range(len(prompts))]
    for choice in choices:
        assert {len(choice["logprobs"][name]) for name in NAMES} == {
            len(prompts[choice["index"]]) + 1
        }, "as many entries as tokens of the prompt, and the one that was generated"
    return choices


def test_a_prompt_is_scored_as_it_was_generated(server: LiveServer, bundled_engine: Engine) -> None:
    context = bundled_engine.tokenizer.encode("Once upon a time")
    body = request(prompt=context, max_tokens=24, logprobs=1, return_token_ids=True)
    for fields in ({}, {"temperature": 1, "seed": 8}):
        said = complete(server, {**body, **fields})["choices"][0]
        (choice,) = scored(server, [[*context, *said["token_ids"]]])
        lists = choice["logprobs"]
        n = len(context)
        assert lists["tokens"][n:-1] == said["logprobs"]["tokens"]
        assert lists["token_logprobs"][n:-1] == pytest.approx(
            said["logprobs"]["token_logprobs"], abs=1e-4
        )
        is_greedy = all(
            lists["tokens"][i] == max(top, key=top.__getitem__)
            for i, top in enumerate(lists["top_logprobs"])
            if i >= n and top is not None
        )
        assert is_greedy == (fields == {})


def test_the_first_token_has_no_probability_and_nothing_is_put_before_ids(
    server: LiveServer, bundled_engine: Engine
) -> None:
    prompts = [bundled_engine.tokenizer.encode(text) for text in ("The cat sat", "One")]
    prompts.append([prompts[0][-1]])
    for prompt, choice in zip(prompts, scored(server, prompts), strict=True):
        lists = choice["logprobs"]
        assert lists["token_logprobs"][0] is None
        assert lists["top_logprobs"][0] is None
        assert all(math.isfinite(value) for value in lists["token_logprobs"][1:])
        assert lists["text_offset"][0] == 0
        assert choice["text"].startswith(bundled_engine.tokenizer.decode(prompt))


@pytest.mark.parametrize("end", ["eos", "stop"])
def test_the_generated_token_is_there_even_when_it_ends_the_text(
    shared_fake: FakeEngine, shared_server: LiveServer, end: str
) -> None:
    shared_fake.model.script = b"" if end == "eos" else b"x"
    body = fake_request(
        prompt=[*b"hello"], max_tokens=1, logprobs=1, echo=True, stop="x", seed=1234
    )
    choice = complete(shared_server, body)["choices"][0]
    name = "<|end|>" if end == "eos" else "x"
    assert choice["logprobs"]["tokens"] == [*"hello", name]
    assert choice["logprobs"]["text_offset"] == [*range(6)]
    assert (choice["text"], choice["finish_reason"]) == ("hello", "stop")
    assert joined(stream(shared_server, body)) == [choice]


def test_with_no_tokens_the_prompt_is_only_scored(server: LiveServer) -> None:
    body = request(max_tokens=0, echo=True, logprobs=2)
    answer = complete(server, body)
    (choice,) = answer["choices"]
    assert choice["text"] == "Once upon a time"
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert joined(stream(server, body)) == [choice]
    without = complete(server, request(max_tokens=0, logprobs=2))["choices"][0]
    assert without["text"] == ""
    assert without["logprobs"]["tokens"] == []


def test_offsets_place_every_token_in_the_text(server: LiveServer) -> None:
    body = request(prompt="Käse 🧀 and bread", max_tokens=12, echo=True, logprobs=0)
    choice = complete(server, body)["choices"][0]
    text, lists = choice["text"], choice["logprobs"]
    assert text.startswith("Käse 🧀 and bread")
    for token, offset in zip(lists["tokens"], lists["text_offset"], strict=True):
        assert token.startswith("bytes:") or text[offset:].startswith(token)
    later = complete(server, {**body, "echo": False})["choices"][0]["logprobs"]
    n = len(later["tokens"])
    assert later["text_offset"] == lists["text_offset"][-n:]


def test_a_token_before_the_text_has_no_place_in_it(
    shared_fake: FakeEngine, shared_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [*([END] if add_special_tokens else []), *text.encode()]

    monkeypatch.setattr(shared_fake.tokenizer, "encode", encode)
    body = fake_request(prompt="abc", max_tokens=2, echo=True, logprobs=0)
    choice = complete(shared_server, body)["choices"][0]
    assert choice["text"].startswith("abc")
    assert choice["logprobs"]["tokens"][:4] == ["<|end|>", "a", "b", "c"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2, 3, 4]
    bare = complete(shared_server, {**body, "add_special_tokens": False})["choices"][0]
    assert bare["logprobs"]["text_offset"] == [*range(5)]


def test_the_prompt_comes_in_the_first_chunk_of_each_choice(shared_server: LiveServer) -> None:
    body = fake_request(prompt=["one", "three"], n=2, max_tokens=3, echo=True, logprobs=1)
    chunks = stream(shared_server, body)
    choices = complete(shared_server, body)["choices"]
    assert joined(chunks) == choices
    seen: set[int] = set()
    for piece in (chunk["choices"][0] for chunk in chunks):
        is_first = piece["index"] not in seen
        seen.add(piece["index"])
        prompt = ("one", "three")[piece["index"] // 2]
        assert piece["text"].startswith(prompt) == is_first
        assert len(piece["logprobs"]["tokens"]) == (len(prompt) + 1 if is_first else 1)
    assert [choice["text"] for choice in choices] == [
        prompt + fake_reply(prompt, 3) for prompt in ("one", "one", "three", "three")
    ]


def test_the_choices_of_a_prompt_say_the_same_of_it(server: LiveServer) -> None:
    body = request(n=3, max_tokens=4, echo=True, logprobs=2, temperature=1, seed=2)
    choices = complete(server, body)["choices"]
    n = len(choices[0]["logprobs"]["tokens"]) - 4
    for choice in choices[1:]:
        for name in NAMES:
            assert choice["logprobs"][name][:n] == choices[0]["logprobs"][name][:n]
    best = complete(server, {**body, "n": 1, "best_of": 3})["choices"][0]
    assert best["logprobs"]["token_logprobs"][:n] == choices[0]["logprobs"]["token_logprobs"][:n]


def test_probabilities_of_the_prompt_by_id(server: LiveServer, bundled_engine: Engine) -> None:
    input_ids = bundled_engine.tokenizer.encode("Once upon a time")
    body = request(prompt=input_ids, max_tokens=1, prompt_logprobs=2, echo=True, logprobs=0)
    choice = complete(server, body)["choices"][0]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert len(others) == len(input_ids) - 1
    for i, (token_id, ranked) in enumerate(zip(input_ids[1:], others, strict=True), start=1):
        entry = ranked[str(token_id)]
        assert entry["logprob"] == choice["logprobs"]["token_logprobs"][i]
        assert entry["decoded_token"] == choice["logprobs"]["tokens"][i]
        assert 2 <= len(ranked) <= 3
        by_rank = sorted(ranked.values(), key=lambda each: each["rank"])
        assert [each["rank"] for each in by_rank[:2]] == [1, 2]
        assert [each["logprob"] for each in by_rank] == sorted(
            (each["logprob"] for each in by_rank), reverse=True
        )
    chunks = stream(server, body)
    assert joined(chunks) == [choice]


def test_a_suffix_needs_the_tokens_for_it(server: LiveServer) -> None:
    assert refusal(server, request(suffix="end")) == (400, "suffix")
    assert complete(server, request(suffix="", max_tokens=1))["choices"][0]["text"]


def test_a_suffix_comes_after_the_completion(shared_server: LiveServer) -> None:
    body = fake_request(prompt="ab", suffix="yz", max_tokens=4, logprobs=0)
    choice = complete(shared_server, body)["choices"][0]
    assert choice["text"] == fake_reply("<ab|yz>", 4)
    assert choice["logprobs"]["text_offset"] == [2, 3, 4, 5], "after the prompt"
    assert joined(stream(shared_server, body)) == [choice]
