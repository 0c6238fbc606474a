"""Text <-> token ids over HTTP, in the words of vLLM, llama-server, TabbyAPI and lm-eval."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from server.schema.tokens import (
    MAX_CHARACTERS,
    MAX_TOKEN_IDS,
    DecodedTokens,
    Detokenized,
    EncodedTokens,
    RenderedPrompt,
    TokenizerInfo,
    Tokens,
)
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

TEXT = "Once upon a time there was a fr\u00f6g \U0001f438."
MESSAGES = [{"role": "user", "content": "A frog, please."}]


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def ask(server: LiveServer, path: str, body: Any, schema: Any) -> Any:
    answer = server.post(path, body)
    assert answer.status == 200, answer.body
    schema.model_validate(answer.json)
    return answer.json


def tokenize(server: LiveServer, **body: Any) -> Any:
    return ask(server, "/tokenize", body, Tokens)


def test_ids_are_the_tokenizers_and_come_back_as_the_text(
    server: LiveServer, bundled_engine: Engine
) -> None:
    answer = tokenize(server, prompt=TEXT, add_special_tokens=False)
    assert answer["tokens"] == bundled_engine.tokenizer.encode(TEXT, add_special_tokens=False)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == bundled_engine.max_seq_len
    assert answer["token_strs"] is None
    back = ask(server, "/detokenize", {"tokens": answer["tokens"]}, Detokenized)
    assert back == {"prompt": TEXT, "content": TEXT}


def test_a_prompt_has_special_tokens_and_content_has_none(
    server: LiveServer, bundled_engine: Engine
) -> None:
    encode = bundled_engine.tokenizer.encode
    assert tokenize(server, prompt=TEXT)["tokens"] == encode(TEXT)
    assert tokenize(server, content=TEXT)["tokens"] == encode(TEXT, add_special_tokens=False)
    assert tokenize(server, content=TEXT, add_special=True)["tokens"] == encode(TEXT)


def test_pieces_and_spellings_come_with_the_ids(server: LiveServer) -> None:
    plain = tokenize(server, prompt=TEXT)
    full = tokenize(server, prompt=TEXT, with_pieces=True, return_token_strs=True)
    assert [token["id"] for token in full["tokens"]] == plain["tokens"]
    assert len(full["token_strs"]) == full["count"]
    pieces = [token["piece"] for token in full["tokens"]]
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces) == TEXT.encode()
    assert any(isinstance(piece, list) for piece in pieces), "a frog is several tokens"


def test_a_control_text_is_a_token_only_where_it_may_be(
    server: LiveServer, bundled_engine: Engine
) -> None:
    marker = sorted(bundled_engine.tokenizer.control_texts)[0]
    special = tokenize(server, content=marker)
    assert special["count"] == 1
    spelled = tokenize(server, content=marker, parse_special=False)
    assert spelled["count"] > 1
    back = ask(server, "/detokenize", {"tokens": special["tokens"]}, Detokenized)
    assert back["content"] == marker
    encode = {"text": marker, "add_bos_token": False, "encode_special_tokens": False}
    assert ask(server, "/v1/token/encode", encode, EncodedTokens)["tokens"] == spelled["tokens"]
    decode = {"tokens": special["tokens"], "decode_special_tokens": False}
    assert ask(server, "/v1/token/decode", decode, DecodedTokens)["text"] == ""


def test_messages_are_rendered_as_the_chat_route_does(
    server: LiveServer, bundled_engine: Engine
) -> None:
    ids = bundled_engine.encode_chat(MESSAGES)
    assert tokenize(server, messages=MESSAGES)["tokens"] == ids
    rendered = ask(server, "/apply-template", {"messages": MESSAGES}, RenderedPrompt)
    assert rendered["prompt"] == bundled_engine.tokenizer.decode(ids)
    open_ended = bundled_engine.encode_chat(MESSAGES, add_generation_prompt=False)
    answer = tokenize(server, messages=MESSAGES, add_generation_prompt=False)
    assert answer["tokens"] == open_ended
    tabby = ask(server, "/v1/token/encode", {"text": MESSAGES}, EncodedTokens)
    assert tabby == {"tokens": open_ended, "length": len(open_ended)}
    chat = server.post(
        "/v1/chat/completions",
        {"model": "soliton-default", "messages": MESSAGES, "max_tokens": 1},
    )
    assert chat.json["usage"]["prompt_tokens"] == len(ids)


def test_text_of_tabby_goes_both_ways(server: LiveServer) -> None:
    encoded = ask(server, "/v1/token/encode", {"text": TEXT}, EncodedTokens)
    assert encoded["length"] == len(encoded["tokens"])
    decoded = ask(server, "/v1/token/decode", {"tokens": encoded["tokens"]}, DecodedTokens)
    assert decoded["text"] == TEXT


def test_a_text_to_encode_has_one_of_two_names(server: LiveServer) -> None:
    """Aphrodite calls it `prompt`, and so does the first call of mikupad."""
    path = "/v1/token/encode"
    by_text = ask(server, path, {"text": TEXT}, EncodedTokens)
    assert ask(server, path, {"prompt": TEXT}, EncodedTokens) == by_text
    assert ask(server, "/v1/tokenize", {"prompt": TEXT}, Tokens)["tokens"] == by_text["tokens"]
    for body in ({}, {"text": TEXT, "prompt": TEXT}, {"content": TEXT}):
        error = server.post(path, body).error
        assert (error["param"], error["message"]) == ("text", "send exactly one of text and prompt")
    assert server.post(path, {"prompt": 5}).error["param"] == "prompt"


def test_the_error_about_a_missing_field_lists_what_was_sent(server: LiveServer) -> None:
    def message(body: dict[str, Any]) -> str:
        answer = server.post("/v1/token/decode", body)
        assert (answer.status, answer.json["error"]["param"]) == (400, "tokens")
        return str(answer.json["error"]["message"])

    assert message({"ids": "secret"}) == "tokens is missing; sent: ids"
    assert message({}) == "tokens is missing"
    many = message({f"{n}{'x' * 1000}": n for n in range(1000)})
    assert many.endswith(", …")
    assert len(many) < 500


def test_the_tokenizer_lists_its_special_tokens(server: LiveServer, bundled_engine: Engine) -> None:
    info = server.get("/tokenizer_info").json
    TokenizerInfo.model_validate(info)
    # As lm-eval does: the id of the end is what the end's text encodes to.
    eos = tokenize(server, prompt=info["eos_token"], add_special_tokens=False)
    assert eos["tokens"] == [bundled_engine.eos_token_ids[0]]
    assert info["eos_token_ids"] == list(bundled_engine.eos_token_ids)
    assert info["chat_template"] == server.get("/props").json["chat_template"]
    assert "messages" in info["chat_template"]


def test_a_long_text_is_encoded_off_the_event_loop(server: LiveServer) -> None:
    text = "frogs " * 20_000
    answer = tokenize(server, prompt=text, add_special_tokens=False)
    back = ask(server, "/detokenize", {"tokens": answer["tokens"]}, Detokenized)
    assert back["prompt"] == text


@pytest.fixture(scope="module")
def shared_server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


WRONG: list[tuple[str, dict[str, Any], str | None]] = [
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "a", "content": "b"}, "prompt"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/tokenize", {"prompt": "\ud800"}, "prompt"),
    ("/tokenize", {"content": "a\udfff"}, "content"),
    ("/tokenize", {"prompt": "a", "with_pieces": "yes"}, "with_pieces"),
    ("/tokenize", {"prompt": "x" * (MAX_CHARACTERS + 1)}, "prompt"),
    ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("/tokenize", {"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": ["5"]}, "tokens[0]"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/detokenize", {"tokens": [257]}, "tokens"),
    ("/detokenize", {"tokens": [2**70]}, "tokens"),
    ("/detokenize", {"tokens": [5] * (MAX_TOKEN_IDS + 1)}, "tokens"),
    ("/apply-template", {}, "messages"),
    ("/apply-template", {"messages": [{"role": "user", "content": "\ud800"}]}, None),
    ("/v1/token/encode", {"text": 5}, "text"),
    ("/v1/token/encode", {"text": "\ud800"}, "text"),
    ("/v1/token/decode", {"tokens": [257]}, "tokens"),
]


@pytest.mark.parametrize(("path", "body", "param"), WRONG)
def test_what_is_wrong_is_refused_by_name(
    shared_server: LiveServer, path: str, body: dict[str, Any], param: str | None
) -> None:
    answer = shared_server.post(path, body)
    assert answer.status == 400, answer.body
    assert answer.error["type"] == "invalid_request_error"
    assert param is None or answer.error["param"] == param


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
        ("/apply-template", {"messages": MESSAGES}),
    ],
)
def test_a_model_that_is_named_is_this_one(
    shared_server: LiveServer, path: str, body: dict[str, Any]
) -> None:
    assert shared_server.post(path, {**body, "model": "fake"}).status == 200
    answer = shared_server.post(path, {**body, "model": "another"})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


def test_a_field_without_effect_is_answered_with_a_warning(shared_server: LiveServer) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/v1/token/decode", {"tokens": [97]})):
        answer = shared_server.post(path, {**body, "no_such_field": 1})
        assert [warning["param"] for warning in answer.json["warnings"]] == ["no_such_field"]
        strict = shared_server.post(path, {**body, "no_such_field": 1, "strict": True})
        assert (strict.status, strict.error["param"]) == (400, "no_such_field")
    refused = shared_server.post("/apply-template", {"messages": MESSAGES, "chat_template": "x"})
    assert (refused.status, refused.error["param"]) == (400, "chat_template")


def test_a_template_that_refuses_is_a_400(shared_server: LiveServer) -> None:
    messages = [{"role": "assistant", "content": "x"}]
    for path in ("/tokenize", "/apply-template"):
        answer = shared_server.post(path, {"messages": messages})
        assert (answer.status, answer.error["code"]) == (400, "chat_template_error")
