"""Malformed requests against a live server: each gets a 400 that says what is wrong, at once, or is
served as usual; never a 5xx. Single fields that other files cover are not repeated here
(test_wire_errors.py, test_field_properties.py, test_json_schema.py, test_reply.py).
"""

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from engine import DEFAULT_MODEL, Engine, Tokenizer
from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest
from tests.support.fake_engine import VOCAB_SIZE, FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "x"}]
BASE: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": "fake", "prompt": "x", "max_tokens": 1},
    CHAT: {"model": "fake", "messages": USER, "max_tokens": 1},
}
MODELS: dict[str, type[BaseModel]] = {
    COMPLETIONS: CompletionRequest,
    CHAT: ChatCompletionRequest,
}
# A guard against endless work: most of these take some milliseconds. Of the processor, because
# other work on the machine does not count.
MOST_CPU_SECONDS = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


def with_field(path: str, name: str, value: str) -> bytes:
    """A request with one more field that takes any text."""
    body = {key: held for key, held in BASE[path].items() if key != name}
    return f'{json.dumps(body)[:-1]}, "{name}": {value}}}'.encode()


def post(server: LiveServer, path: str, body: Any) -> Answer:
    began = time.process_time()
    answer = server.post(path, body)
    assert answer.status < 500, answer.body
    assert time.process_time() - began < MOST_CPU_SECONDS
    return answer


def assert_bad(answer: Answer) -> None:
    assert answer.status == 400, answer.body
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["message"]


def fields_of(path: str, kind: str) -> list[str]:
    """The fields that take only this type or null, by their names on the wire."""
    names = []
    for name, field in MODELS[path].model_json_schema()["properties"].items():
        kinds = {branch.get("type") for branch in field.get("anyOf", [field])} - {"null"}
        if kinds == {kind}:
            names.append(name)
    return names


NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', '"1"', "true", "[]", "{}"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_what_is_not_a_number_is_refused_in_every_numeric_field(
    server: LiveServer, path: str
) -> None:
    floats, integers = fields_of(path, "number"), fields_of(path, "integer")
    assert len(floats) > 30
    assert len(integers) > 15
    for name in floats + integers:
        for value in NUMBERS:
            answer = post(server, path, with_field(path, name, value))
            assert_bad(answer)
            assert answer.error["param"] == name


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_the_smallest_numbers_are_numbers(server: LiveServer, path: str) -> None:
    for name in fields_of(path, "number"):
        for value in ("-0.0", "5e-324"):
            answer = post(server, path, with_field(path, name, value))
            if answer.status != 200:
                # The engine refuses guidance_scale, and knows it by its first name.
                assert answer.error["param"] in (name, "cfg_scale")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_integers_of_any_size(server: LiveServer, path: str) -> None:
    for name in fields_of(path, "integer"):
        for value in (-1, 0, 2**31, 2**63, -(2**63), 10**308):
            answer = post(server, path, with_field(path, name, str(value)))
            if answer.status != 200:
                assert_bad(answer)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_null_is_as_if_a_field_was_not_there(server: LiveServer, path: str) -> None:
    for name in MODELS[path].model_json_schema()["properties"].keys() - BASE[path].keys():
        assert post(server, path, with_field(path, name, "null")).status == 200, name


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("value", ["1", "0", '"true"', "[]"])
def test_nothing_else_is_true_or_false(server: LiveServer, path: str, value: str) -> None:
    for name in fields_of(path, "boolean"):
        answer = post(server, path, with_field(path, name, value))
        assert_bad(answer)
        assert answer.error["param"] == name


TEXT = '{"model": "fake", "prompt": "caf\u00e9", "max_tokens": 1}'


@pytest.mark.parametrize(
    "body",
    [
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-32"),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("latin-1"),
        TEXT.encode() + b"\0",
        TEXT.encode() + b"{}",
        b"\xc0\xaf" + TEXT.encode(),
        TEXT.encode().replace(b"caf", b"\xed\xa0\x80"),
        b'{"model": "fake", "prompt": "a", "prompt": "b"}',
        b'{"model": "fake", "prompt": "a", "logit_bias": {"1": 1, "1": 2}}',
        b'{"model": "fake", "prompt": "a", "max_tokens": ' + b"1" * 5000 + b"}",
        b'{"model": "fake", "prompt": "a", "x": 1e' + b"9" * 5000 + b", }",
        b'{"model": "fake", "prompt": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "fake", "prompt": "a", "x": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b"{" + b",".join(b'"x%d":1' % i for i in range(100_000)) + b"}",
    ],
    ids=lambda body: repr(bytes(body[:24])),
)  # fmt: skip
def test_a_body_that_is_not_ours_is_refused(server: LiveServer, body: bytes) -> None:
    assert_bad(post(server, COMPLETIONS, body))


NESTED = "[" * 900 + "]" * 900
TOOL = '[{"type": "function", "function": {"name": "f", "parameters": %s}}]'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("x", "%s"),
        ("metadata", "%s"),
        ("chat_template_kwargs", '{"a": %s}'),
        ("documents", '[{"a": %s}]'),
        ("tools", TOOL % '{"a": %s}'),
    ],
)
def test_what_is_inside_of_free_objects(server: LiveServer, field: str, value: str) -> None:
    post(server, CHAT, with_field(CHAT, field, value % NESTED))
    for no_number in ("NaN", "-Infinity", "1e999"):
        answer = post(server, CHAT, with_field(CHAT, field, value % no_number))
        if field in ("chat_template_kwargs", "documents", "tools"):
            assert_bad(answer)
            assert str(answer.error["param"]).startswith(field)
            assert "finite" in answer.error["message"]


@pytest.mark.parametrize("n", [100, 10_000, 100_000])
@pytest.mark.parametrize(
    ("path", "field"),
    [
        (COMPLETIONS, "n"), (COMPLETIONS, "best_of"), (COMPLETIONS, "logprobs"),
        (COMPLETIONS, "prompt_logprobs"), (CHAT, "n"), (CHAT, "top_logprobs"), (CHAT, "n_probs"),
    ],
)  # fmt: skip
def test_counts_beyond_their_limit(server: LiveServer, path: str, field: str, n: int) -> None:
    body = {**BASE[path], "max_tokens": 8, field: 1000 * n}
    if field == "top_logprobs":
        body["logprobs"] = True
    assert_bad(post(server, path, body))


@pytest.mark.parametrize("n", [200, 20_000])
@pytest.mark.parametrize("field", ["stop", "tools", "functions", "logit_bias", "prompt", "include"])
def test_lists_beyond_their_limit(server: LiveServer, field: str, n: int) -> None:
    function = {"name": "f", "parameters": {}}
    path, value = {
        "stop": (COMPLETIONS, ["x"] * n),
        "tools": (CHAT, [{"type": "function", "function": function}] * n),
        "functions": (CHAT, [function] * n),
        "logit_bias": (COMPLETIONS, {str(i): 1 for i in range(VOCAB_SIZE, VOCAB_SIZE + n)}),
        "prompt": (COMPLETIONS, ["x"] * n),
        "include": (COMPLETIONS, ["x"] * n),
    }[field]
    assert_bad(post(server, path, {**BASE[path], field: value}))


def test_more_messages_than_fit(server: LiveServer) -> None:
    answer = post(server, CHAT, {**BASE[CHAT], "messages": USER * 10_000})
    assert_bad(answer)
    assert answer.error["code"] == "context_length_exceeded"


IDS: list[Any] = [-1, VOCAB_SIZE, VOCAB_SIZE + 1, 2**31, 2**63, 2**64, "abc", 1.5, True, None]


@pytest.mark.parametrize("token_id", IDS)
def test_ids_that_are_not_tokens_are_refused(server: LiveServer, token_id: Any) -> None:
    fields = "prompt", "stop_token_ids", "allowed_tokens", "banned_tokens", "custom_token_bans"
    lists = {name: [token_id] for name in fields}
    if token_id == "abc":
        del lists["prompt"]  # that is a text
    for field, value in lists.items():
        for penalties in ({}, {"frequency_penalty": 2, "presence_penalty": -2}):
            body = {**BASE[COMPLETIONS], **penalties, field: value}
            assert_bad(post(server, COMPLETIONS, body))
    for bias in ({str(token_id): 1}, [[token_id, 1]]):
        assert_bad(post(server, COMPLETIONS, {**BASE[COMPLETIONS], "logit_bias": bias}))
    assert_bad(post(server, "/detokenize", {"tokens": [token_id]}))


STRANGE = [
    "\0",
    "\u202e\u05d0",
    "e" + "\u0301" * 1_000_000,
    "../../../etc/passwd",
    "\U0001f9c0" * 9,
]


@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize("field", ["user", "model", "cache_salt", "x", "metadata", "prompt"])
def test_strange_texts_are_opaque(server: LiveServer, field: str, text: str) -> None:
    answer = post(server, COMPLETIONS, {**BASE[COMPLETIONS], field: text})
    assert answer.status in (200, 400, 404)
    assert len(answer.body) < 4000
    assert post(server, COMPLETIONS, {**BASE[COMPLETIONS], "echo": True}).status == 200


@pytest.mark.parametrize(
    "text", ["a\0b", "\u202e\u05d0\u200d", "e\u0301\u0302", "\r\n\u2028\u0085"]
)
def test_text_comes_back_as_it_was(server: LiveServer, text: str) -> None:
    body = {**BASE[COMPLETIONS], "prompt": text, "echo": True, "max_tokens": 0}
    assert post(server, COMPLETIONS, body).json["choices"][0]["text"] == text


@pytest.mark.parametrize(
    "name", ["chat_template", "tokenize", "continue_final_message", "messages"]
)
def test_no_variable_of_a_template_is_an_option(bundled_engine: Engine, name: str) -> None:
    with live_server(bundled_engine) as server:
        body = {
            **BASE[CHAT],
            "model": bundled_engine.model_id,
            "chat_template_kwargs": {name: True},
        }
        answer = post(server, CHAT, body)
    assert_bad(answer)
    assert answer.error["param"] == "chat_template_kwargs"


PATTERNS = [
    "(a+)+b",
    "(a|a)*b" * 50,
    "(.*){10}" * 20,
    "a{1000}{1000}",
    "(?:(?:x?){99}){99}",
    "\\p{L}{9999}",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_costly_pattern_is_served_or_refused(bundled_engine: Engine, pattern: str) -> None:
    with live_server(bundled_engine) as server:
        body = {"model": bundled_engine.model_id, "prompt": "x", "max_tokens": 2}
        post(server, COMPLETIONS, {**body, "guided_regex": pattern})


def test_a_schema_that_holds_itself(bundled_engine: Engine) -> None:
    loops: list[dict[str, Any]] = [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}, {"type": "object"}]},
        {"enum": [str(i) for i in range(10_000)]},
        {"type": "nothing"},
        {"pattern": "(", "type": "string"},
    ]
    with live_server(bundled_engine) as server:
        for schema in loops:
            body = {"model": bundled_engine.model_id, "prompt": "x", "max_tokens": 2}
            post(server, COMPLETIONS, {**body, "json_schema": schema})


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_the_end_of_the_context_is_exact(server: LiveServer, over: int) -> None:
    n_context = FakeEngine().max_seq_len
    for n_new in (1, 5):
        prompt = [1] * (n_context - n_new + over)
        body = {**BASE[COMPLETIONS], "prompt": prompt, "max_tokens": n_new}
        answer = post(server, COMPLETIONS, body)
        if over > 0:
            assert_bad(answer)
            assert answer.error["code"] == "context_length_exceeded"
        else:
            assert answer.json["usage"]["completion_tokens"] == n_new


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEFAULT_MODEL, 2**20)


@pytest.mark.parametrize("field", ["prompt", "messages", "negative_prompt"])
def test_a_prompt_far_too_long_is_not_encoded(
    bundled_engine: Engine, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "never read \u00e9 " * 60_000
    path = CHAT if field == "messages" else COMPLETIONS
    value = [{"role": "user", "content": text}] if field == "messages" else text
    body = {**BASE[path], "model": bundled_engine.model_id, field: value}
    encode_pieces = bundled_engine.tokenizer.encode_pieces
    lengths: list[int] = []

    def noted(pieces: Iterable[tuple[str, bool]]) -> list[int]:
        pieces = list(pieces)
        lengths.extend(len(text) for text, _ in pieces)
        return encode_pieces(pieces)

    monkeypatch.setattr(bundled_engine.tokenizer, "encode_pieces", noted)
    with live_server(bundled_engine) as server:
        answer = post(server, path, body)
    assert max(lengths, default=0) < len(text)
    assert_bad(answer)
    assert answer.error["code"] == "context_length_exceeded"
    assert "at least" in answer.error["message"]


TEXTS = st.text() | st.text("ab \n\u00e9<|end|>=_", max_size=200) | st.sampled_from(
    [" " * 99, "=" * 99, "<|end|>" * 9, "the quick brown fox " * 9]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_a_text_never_has_fewer_tokens_than_its_bound(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))
    text = (text + "x") * 20
    n_tokens = len(tokenizer.encode(text, add_special_tokens=False))
    assert 0 < tokenizer.least_tokens(text) <= n_tokens
