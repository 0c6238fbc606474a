"""`watch`: the raw probability of named tokens in the place of every token."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from engine import DEFAULT_MODEL, Engine, InvalidInputError, SamplingSettings, StreamOptions
from server.schema.chat import ChatCompletion
from tests.support.chat_client import assert_same, chunks
from tests.support.chat_client import whole as reply
from tests.support.completion_calls import complete, joined, request, stream
from tests.support.live_server import LiveServer, live_server

PROMPT = "Tom and Sue and Tom and Sue and Tom and"
WATCH = [
    {"name": "and", "strings": [" and"]},
    {"name": "either", "strings": [" Sue", " Tom"], "token_ids": [300]},
    {"name": "odd", "token_ids": [4000]},
    {"name": "end", "strings": ["<|endoftext|>"]},
]


@pytest.fixture(scope="module", params=["off", "ngram"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine.load(DEFAULT_MODEL, device="cpu", speculate=request.param)


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine) as server:
        yield server


def ids_of(engine: Engine) -> list[list[int]]:
    encode = engine.tokenizer.encode
    both = [*encode(" Sue"), *encode(" Tom"), 300]
    return [encode(" and"), both, [4000], [engine.eos_token_ids[0]]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"settings": SamplingSettings(temperature=1.3, seed=5, top_k=3, repetition_penalty=1.4)},
        {"banned_strings": [" Sue"], "settings": SamplingSettings(temperature=1, seed=2)},
        {"negative_ids": [300, 301], "cfg_scale": 1.5},
        {"token_healing": True},
    ],
)
def test_it_is_the_softmax_of_the_logits(engine: Engine, options: dict[str, Any]) -> None:
    settings = options.pop("settings", SamplingSettings(temperature=0))
    sets = ids_of(engine)
    stream = engine.generator.begin(
        engine.tokenizer.encode(PROMPT),
        settings,
        StreamOptions(watch=sets, return_logits=True, max_new_tokens=24, **options),
    )
    n_seen = 0
    while True:
        result = stream.step()
        records = [*result.tokens, *result.dropped]
        for record, row in zip(records, result.logits if records else (), strict=True):  # type: ignore[arg-type]
            exponentials = np.exp(row.astype(np.float64) - row.max())
            probabilities = exponentials / exponentials.sum()
            expected = [probabilities[token_ids].sum() for token_ids in sets]
            assert record.watched == pytest.approx(expected, rel=1e-5, abs=1e-12)
            n_seen += 1
        if result.eos:
            break
    assert n_seen == 24


def test_drafts_change_nothing_and_streamed_is_whole(server: LiveServer, engine: Engine) -> None:
    body = request(
        prompt=PROMPT, max_tokens=24, watch=WATCH, echo=True, include=["token_ids", "probs"]
    )
    (choice,) = complete(server, body)["choices"]
    assert joined(stream(server, body)) == [choice]
    lists = choice["logprobs"]
    n_prompt = len(engine.tokenizer.encode(PROMPT))
    assert lists["watch"][:n_prompt] == [None] * n_prompt
    sets = dict(zip(("and", "either", "odd", "end"), ids_of(engine), strict=True))
    for token_id, p_raw, watched in zip(
        lists["token_id"][n_prompt:], lists["p_raw"][n_prompt:], lists["watch"][n_prompt:],
        strict=True,
    ):  # fmt: skip
        assert list(watched) == ["and", "either", "odd", "end"]
        for name, token_ids in sets.items():
            if token_ids == [token_id]:
                assert watched[name] == pytest.approx(p_raw, rel=1e-6)
    plain = complete(server, {**body, "watch": None})["choices"][0]["text"]
    assert choice["text"] == plain, "watching draws nothing else"


def test_a_reply_is_watched_even_under_a_constraint(server: LiveServer) -> None:
    body = {
        "messages": [{"role": "user", "content": "Is it warm in Rome?"}],
        "guided_choice": ["Yes", "No"],
        "temperature": 0,
        "watch": [{"name": "yes", "strings": ["Yes"]}, {"name": "no", "strings": ["No"]}],
    }
    answer = reply(server, body)
    ChatCompletion.model_validate(answer)
    first = answer["choices"][0]["logprobs"]["content"][0]
    assert set(first["watch"]) == {"yes", "no"}
    assert 0 < first["watch"]["yes"] < 1
    assert first["watch"]["yes"] + first["watch"]["no"] < 1, "raw, and not of the constraint"
    assert_same(chunks(server, body), answer)


@pytest.mark.parametrize(
    ("watch", "param", "words"),
    [
        ([], "watch", "at least 1"),
        ([{"token_ids": [1]}], "watch[0].name", "missing"),
        ([{"name": "a"}], "watch[0]", "send token_ids or strings"),
        ([{"name": "a", "token_ids": []}], "watch[0].token_ids", "at least 1"),
        ([{"name": "a", "token_ids": [99999]}], "watch[0].token_ids", "0 to 4"),
        ([{"name": "a", "strings": [" I cannot"]}], "watch[0].strings[0]", "not the text of one"),
        ([{"name": "a", "strings": [""]}], "watch[0].strings[0]", "not the text of one"),
        ([{"name": "a", "token_ids": [1]}] * 2, "watch[1].name", "that of watch[0]"),
        ([{"name": "a", "tokens": [1], "token_ids": [1]}], "watch[0].tokens", "does not know"),
        ([{"name": "a", "token_ids": [1]}] * 65, "watch", "at most 64"),
    ],
)
def test_what_cannot_be_watched_is_said(
    server: LiveServer, watch: Any, param: str, words: str
) -> None:
    body = request(watch=watch, strict=True)
    answer = server.post("/v1/completions", body)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert words in answer.error["message"]


def test_an_option_of_the_engine_is_checked(engine: Engine) -> None:
    wrong: list[list[list[int]]] = [[[]], [[1], [-1]]]
    for watch in wrong:
        with pytest.raises(InvalidInputError) as raised:
            engine.generator.begin([1], options=StreamOptions(watch=watch))
        assert raised.value.param == "watch"


@pytest.mark.clients
def test_the_official_client_sends_it(server: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="soliton-default",
            messages=[{"role": "user", "content": "Is it warm in Rome?"}],
            max_completion_tokens=2,
            logprobs=True,
            extra_body={"watch": [{"name": "yes", "strings": ["Yes"]}]},
        )
        assert answer.choices[0].logprobs
        assert answer.choices[0].logprobs.content
        first: Any = answer.choices[0].logprobs.content[0]
        assert 0 <= first.watch["yes"] <= 1
