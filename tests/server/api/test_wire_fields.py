"""The fields of other servers over HTTP: they reach the engine, or the client learns why not."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.live_server import LiveServer, live_server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def model(bundled_engine: Engine) -> str:
    return bundled_engine.model_id


def text_of(server: LiveServer, model: str, **fields: Any) -> str:
    """The completion; there must be no warning."""
    body = {"model": model, "prompt": "Once upon a time", "temperature": 0, **fields}
    answer = server.post(COMPLETIONS, {"max_tokens": 12, "strict": True, **body})
    assert answer.status == 200, answer.body
    assert "warnings" not in answer.json
    text: str = answer.json["choices"][0]["text"]
    return text


def test_only_allowed_and_no_banned_tokens_are_drawn(
    server: LiveServer, model: str, bundled_engine: Engine
) -> None:
    encode = bundled_engine.tokenizer.encode
    (lily,), (tom,), (comma,) = (encode(text) for text in (" Lily", " Tom", ","))
    assert text_of(server, model, allowed_token_ids=[lily], max_tokens=2) == " Lily Lily"
    assert text_of(server, model).startswith(",")
    assert not text_of(server, model, custom_token_bans=f"{comma},{tom}").startswith(",")
    assert not text_of(server, model, logit_bias=[[comma, False]]).startswith(",")


def test_a_banned_string_never_shows(server: LiveServer, model: str) -> None:
    assert "little" in text_of(server, model)
    assert "little" not in text_of(server, model, bad_words=["LITTLE"])


def test_a_stop_may_be_a_token(server: LiveServer, model: str, bundled_engine: Engine) -> None:
    (there,) = bundled_engine.tokenizer.encode(" there")
    assert text_of(server, model, stop=[there, "xyz"]) == ","
    assert text_of(server, model, stopping_strings=["there"]) == ", "


def test_lengths_by_their_other_names(server: LiveServer, model: str) -> None:
    whole = text_of(server, model)
    for name in ("n_predict", "max_new_tokens", "max_length", "num_predict"):
        assert text_of(server, model, **{"max_tokens": None, name: 12}) == whole


def test_a_constraint_by_each_of_its_names(server: LiveServer, model: str) -> None:
    for fields in (
        {"guided_choice": ["yes", "yes"]},
        {"structured_outputs": {"choice": ["yes"]}},
        {"regex_pattern": "yes"},
        {"regex": "yes"},
        {"grammar": 'start: "yes"'},
        {"grammar": 'root ::= y "es"\ny ::= [y] # a rule'},
        {"grammar_string": 'root ::= "yes"'},
        {"guided_json": {"const": "yes"}},
        {"guided_json": {"const": "yes", "strict": True, "x-order": 1, "propertyOrdering": []}},
        {"json_schema": '{"const": "yes"}'},
    ):
        assert text_of(server, model, **fields).strip('"') == "yes", fields


def test_the_same_seed_by_another_name(server: LiveServer, model: str) -> None:
    texts = {
        text_of(server, model, temperature=1, max_tokens=20, **{name: 11})
        for name in ("seed", "sampler_seed")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"rep_pen": 1.1, "repeat_penalty": 1.2}, "repeat_penalty", "rep_pen"),
        ({"rep_pen": 500}, "rep_pen", "between 0.01 and 100.0, not 500"),
        ({"mirostat_mode": 1}, "mirostat_mode", "version 2"),
        ({"grammar": "root ::= x"}, "grammar", "GBNF grammar, line 1, column 10: there is no rule"),
        ({"ebnf": 'root ::= "x"'}, "ebnf", "GBNF or Lark as `grammar`"),
        ({"regex": ""}, "regex", "is empty"),
        ({"guided_grammar": ""}, "guided_grammar", "is empty"),
        ({"structured_outputs": {}}, "structured_outputs", "asks for nothing"),
        ({"strict": True, "grammar": ""}, "grammar", "asks for nothing"),
        ({"guided_regex": "a", "grammar": "start: x"}, "grammar", "guided_regex"),
        ({"strict": True, "smoothing_curve": 2}, "smoothing_curve", "strict"),
        ({"strict": True, "mirostat_tau": 2}, "mirostat_tau", "mirostat"),
        ({"speculative.n_max": -1}, "speculative.n_max", "greater"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_that_was_sent(
    server: LiveServer, model: str, path: str, fields: dict[str, Any], param: str, words: str
) -> None:
    prompt = {"prompt": "x"} if path == COMPLETIONS else {"messages": [message("x")]}
    answer = server.post(path, {"model": model, "max_tokens": 2, **prompt, **fields})
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert words in answer.error["message"]


def test_a_field_without_effect_is_reported_in_the_answer(server: LiveServer, model: str) -> None:
    fields = {"mirostat_tau": 2, "do_sample": False, "messages": [message("x")]}
    answer = server.post(CHAT, {"model": model, "max_tokens": 2, **fields})
    assert answer.status == 200, answer.body
    assert [warning["param"] for warning in answer.json["warnings"]] == [
        "do_sample",
        "mirostat_tau",
    ]


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_whole_number_is_an_integer_however_it_is_written(server: LiveServer, model: str) -> None:
    token_ids = [5.0, 7, 9.0]
    plain = {"model": model, "prompt": [5, 7, 9], "max_tokens": 3, "temperature": 0, "top_k": 20}
    floats = {**plain, "prompt": token_ids, "max_tokens": 3.0, "temperature": 0.0, "top_k": 2e1}
    answers = [server.post(COMPLETIONS, body) for body in (plain, floats)]
    assert answers[0].json["choices"] == answers[1].json["choices"]
    refused = server.post(COMPLETIONS, {**plain, "max_tokens": 3.5})
    assert (refused.status, refused.error["param"]) == (400, "max_tokens")
