"""Every refusal of the wire: status, envelope, field; before the first byte, and after it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from engine import InvalidInputError, NumericsError, StreamOptions
from server.errors import error_body
from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server, wait_until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "x"}]
BASE: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"model": "fake", "prompt": "x", "max_tokens": 2},
    CHAT: {"model": "fake", "messages": USER, "max_tokens": 2},
}
PART = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}


@pytest.fixture(scope="module")
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=64)


@pytest.fixture(scope="module")
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine, max_body_bytes=64 * 1024) as server:
        yield server


def assert_refused(answer: Answer, status: int, *, param: str | None, code: str | None) -> None:
    assert answer.status == status, answer.body
    assert (answer.error["param"], answer.error["code"]) == (param, code), answer.error
    assert answer.error["message"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")


FLOATS = (
    "temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty",
)  # fmt: skip
INTEGERS = ("seed", "max_tokens", "n", "top_k")
NO_FLOAT: list[Any] = ["1", True, [], -3, 1e6]
NO_INTEGER: list[Any] = ["5", 5.5, True, [], {}, 2**70]
NO_STOP: list[Any] = ["", [""], 5, [-5], [257], [True], ["x"] * 65, "x" * 1025, {}]
NO_BIAS: list[Any] = [
    [5],
    {"5": True},
    [[5]],
    {"a": 1},
    {"-1": 1},
    {"257": 1},
    {"99999999999": 1},
    {"\u0665": 1},
]
NO_TOKEN_IDS: list[Any] = [5, [-1], [257], [2**70]]

WRONG_IN_BOTH: list[tuple[str, Any, str]] = [
    *[(name, value, name) for name in FLOATS for value in NO_FLOAT],
    *[(name, value, name) for name in INTEGERS for value in NO_INTEGER],
    *[("stop", value, "stop") for value in NO_STOP],
    *[("logit_bias", value, "logit_bias") for value in NO_BIAS],
    *[("stop_token_ids", value, "stop_token_ids") for value in NO_TOKEN_IDS],
    ("max_tokens", -2, "max_tokens"),
    ("top_k", -2, "top_k"),
    ("n", 0, "n"),
    ("logit_bias", {"5": "1"}, "logit_bias"),
    ("stop_token_ids", ["5"], "stop_token_ids[0]"),
    ("ignore_eos", 1, "ignore_eos"),
    ("stream", "true", "stream"),
    ("stream_options", {}, "stream_options"),
    ("user", 5, "user"),
    ("tool_choice", "required", "tool_choice"),
    ("response_format", {"type": "grammar"}, "response_format.type"),
    ("audio", {}, "audio"),
    ("modalities", ["text", "audio"], "modalities"),
    ("web_search_options", {}, "web_search_options"),
    ("chat_template", "{{ x }}", "chat_template"),
    ("prompt_embeds", "x", "prompt_embeds"),
]  # fmt: skip


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(("name", "value", "param"), WRONG_IN_BOTH)
def test_a_wrong_value_is_refused_by_name(
    server: LiveServer, path: str, name: str, value: Any, param: str
) -> None:
    for stream in (False, True) if name not in ("stream", "stream_options") else (False,):
        body = {**BASE[path], "stream": stream, name: value}
        code = "context_length_exceeded" if (name, value) == ("max_tokens", 2**70) else None
        if code:
            param = "prompt" if path == COMPLETIONS else "messages"
        assert_refused(server.post(path, body), 400, param=param, code=code)


WRONG_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": [1, "x"]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [257]}, "prompt"),
    ({"prompt": [2**70]}, "prompt"),
    ({"prompt": "\ud800"}, "prompt"),
    ({"stop": "\udfff"}, "stop"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG_COMPLETIONS)
def test_a_wrong_prompt_is_refused(server: LiveServer, fields: dict[str, Any], param: str) -> None:
    answer = server.post(COMPLETIONS, {**BASE[COMPLETIONS], **fields})
    assert_refused(answer, 400, param=param, code=None)


WRONG_CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [*USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [PART]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ({"messages": [{**USER[0], "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
    ({"messages": [{**USER[0], "function_call": {}}]}, "messages[0].function_call.name"),
    ({"max_completion_tokens": 3}, "max_tokens"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
    ),
]


@pytest.mark.parametrize(("fields", "param"), WRONG_CHAT)
def test_a_wrong_conversation_is_refused(
    server: LiveServer, fields: dict[str, Any], param: str
) -> None:
    answer = server.post(CHAT, {**BASE[CHAT], **fields})
    assert_refused(answer, 400, param=param, code=None)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_an_error_of_the_engine_names_the_field_that_was_sent(
    server: LiveServer, path: str
) -> None:
    answer = server.post(path, {**BASE[path], "max_tokens": 2, "min_tokens": 3})
    assert_refused(answer, 400, param="min_tokens", code=None)


def test_what_the_template_refuses_is_a_bad_request(server: LiveServer) -> None:
    messages = [*USER, {"role": "assistant", "content": "x"}]
    answer = server.post(CHAT, {**BASE[CHAT], "messages": messages})
    assert_refused(answer, 400, param=None, code="chat_template_error")


BROKEN_BODIES = [
    b"", b"null", b"[]", b'"x"', b"5", b"{", b"{'a': 1}", b"\xff\xfe\xfd", b"[" * 100_00,
    b'{"model":"fake","prompt":"x","seed":' + b"9" * 5000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("body", BROKEN_BODIES, ids=range(len(BROKEN_BODIES)))
def test_a_body_that_is_not_a_json_object_is_a_bad_request(
    server: LiveServer, path: str, body: bytes
) -> None:
    answer = server.post(path, body)
    assert answer.status == 400, answer.body
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] is None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "frequency_penalty", "max_tokens"])
def test_what_is_not_a_number_is_refused_and_not_repeated(
    server: LiveServer, field: str, number: str
) -> None:
    body = '{"model":"fake","prompt":"x","%s":%s}' % (field, number)  # noqa: UP031
    answer = server.post(COMPLETIONS, body.encode())
    assert_refused(answer, 400, param=field, code=None)
    assert not any(word in answer.body for word in (b"NaN", b"Infinity", b"1e999"))


def test_an_error_never_repeats_what_was_sent(server: LiveServer) -> None:
    for fields in ({"temperature": "canary"}, {"stop": {"canary": 1}}, {"prompt": {"canary": 1}}):
        answer = server.post(COMPLETIONS, {**BASE[COMPLETIONS], **fields})
        assert answer.status == 400
        assert b"canary" not in answer.body


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (COMPLETIONS, {"prompt": "x" * 64}),
        (COMPLETIONS, {"prompt": "x" * 64, "max_tokens": None}),
        (COMPLETIONS, {"prompt": [1] * 5000}),
        (COMPLETIONS, {"prompt": "x" * 60, "max_tokens": 5}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 64}]}),
        (CHAT, {"max_tokens": 60}),
        (CHAT, {"max_completion_tokens": 60, "max_tokens": None}),
    ],
)
def test_what_does_not_fit_the_context_is_refused_before_it_is_queued(
    fake: FakeEngine, server: LiveServer, path: str, fields: dict[str, Any]
) -> None:
    n_prompts = fake.model.n_prompts
    answer = server.post(path, {**BASE[path], **fields})
    param = "prompt" if path == COMPLETIONS else "messages"
    assert_refused(answer, 400, param=param, code="context_length_exceeded")
    assert fake.model.n_prompts == n_prompts, "the engine saw nothing of it"


def test_what_just_fits_the_context_is_served(server: LiveServer) -> None:
    for n_prompt, max_tokens in ((60, 4), (63, 1), (63, None)):
        body = {**BASE[COMPLETIONS], "prompt": "x" * n_prompt, "max_tokens": max_tokens}
        assert server.post(COMPLETIONS, body).status == 200


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_an_unknown_model_is_not_found(server: LiveServer, path: str) -> None:
    answer = server.post(path, {**BASE[path], "model": "gpt-none"})
    assert_refused(answer, 404, param="model", code="model_not_found")
    assert_refused(server.get("/v1/models/gpt-none"), 404, param="model", code="model_not_found")


@pytest.mark.parametrize("path", ["/v1", "/v1/completions/", "/v1/moderations", "/redoc"])
def test_an_unknown_route_is_not_found(server: LiveServer, path: str) -> None:
    assert_refused(server.get(path), 404, param=None, code="not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", COMPLETIONS), ("DELETE", CHAT), ("POST", "/v1/models"), ("PUT", "/health/live")],
)
def test_a_wrong_method_is_named_with_the_right_one(
    server: LiveServer, method: str, path: str
) -> None:
    answer = server.request(method, path)
    assert_refused(answer, 405, param=None, code="method_not_allowed")
    assert answer.headers["allow"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_refused(server: LiveServer, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    answer = server.request("POST", COMPLETIONS, b'{"model":"fake","prompt":"x"}', headers)
    assert_refused(answer, 415, param=None, code="unsupported_media_type")


def test_a_body_over_the_limit_is_refused_by_its_length(server: LiveServer) -> None:
    answer = server.post(COMPLETIONS, {**BASE[COMPLETIONS], "user": "x" * 64 * 1024})
    assert_refused(answer, 413, param=None, code="body_too_large")


def test_a_body_over_the_limit_is_refused_as_it_comes(server: LiveServer) -> None:
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    head = (
        f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        "transfer-encoding: chunked\r\n\r\n"
    )
    with server.connect() as sock:
        sock.sendall(head.encode() + chunk * 17)
        assert sock.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_too_many_unknown_fields_are_refused(server: LiveServer) -> None:
    body = {**BASE[COMPLETIONS], **{f"x{i}": i for i in range(65)}}
    assert_refused(server.post(COMPLETIONS, body), 400, param=None, code=None)


def test_a_full_queue_says_when_to_come_back() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine, max_queue=0) as server:
        fake.model.decode_gate.clear()
        with server.send(COMPLETIONS, BASE[COMPLETIONS]):
            wait_until(fake.model.in_decode.is_set)
            for stream in (False, True):
                answer = server.post(COMPLETIONS, {**BASE[COMPLETIONS], "stream": stream})
                assert_refused(answer, 429, param=None, code="queue_full")
                assert answer.error["type"] == "rate_limit_error"
                assert "has no queue" in answer.error["message"]
                assert int(answer.headers["retry-after-ms"]) > 0
            fake.model.decode_gate.set()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (RuntimeError("secret path /srv/x"), "engine_error"),
        (NumericsError("NaN"), "engine_numerics"),
    ],
)
def test_an_engine_error_before_the_first_byte_is_a_status(
    fake: FakeEngine, server: LiveServer, stream: bool, fault: Exception, code: str
) -> None:
    fake.model.faults[0] = fault
    answer = server.post(COMPLETIONS, {**BASE[COMPLETIONS], "stream": stream})
    assert_refused(answer, 500, param=None, code=code)
    assert b"secret" not in answer.body
    assert server.post(COMPLETIONS, BASE[COMPLETIONS]).status == 200, "the engine lives"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_an_engine_error_after_the_first_byte_is_the_last_event(
    fake: FakeEngine, server: LiveServer, path: str
) -> None:
    fake.model.faults[1] = RuntimeError("secret path /srv/x")
    answer = server.post(path, {**BASE[path], "stream": True})
    assert answer.status == 200
    parsed = parse_event_stream(answer.body)
    assert "[DONE]" not in parsed.data
    assert parsed.chunks[-1] == {
        "error": {
            "message": "the engine failed in this request",
            "type": "server_error",
            "param": None,
            "code": "engine_error",
        }
    }
    assert len(parsed.chunks) == (2 if path == COMPLETIONS else 3)
    assert server.post(path, BASE[path]).status == 200, "the engine lives"


def test_an_engine_error_in_the_middle_of_a_whole_answer_is_a_status(
    fake: FakeEngine, server: LiveServer
) -> None:
    fake.model.faults[1] = RuntimeError("broken")
    answer = server.post(COMPLETIONS, BASE[COMPLETIONS])
    assert_refused(answer, 500, param=None, code="engine_error")


def test_health_tells_live_from_ready(server: LiveServer) -> None:
    for path in ("/health/live", "/health/ready"):
        answer = server.get(path)
        assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_models_are_listed_and_found_by_name() -> None:
    with live_server(FakeEngine().as_engine, served_model_name=("org/name",)) as server:
        listed = server.get("/v1/models").json
        assert [model["id"] for model in listed["data"]] == ["org/name"]
        found = server.get("/v1/models/org/name").json
        assert found == listed["data"][0]
        assert (found["owned_by"], found["max_model_len"]) == ("soliton", 512)
        assert server.post(COMPLETIONS, {**BASE[COMPLETIONS], "model": "org/name"}).status == 200


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("input_ids", "prompt"),
        ("max_new_tokens", "max_tokens"),
        ("min_new_tokens", "min_tokens"),
        ("negative_ids", "negative_prompt"),
        ("return_prompt_tokens", "prompt_logprobs"),
        ("return_top_tokens", "top_logprobs"),
        ("stop", "stop"),
        ("temperature", "temperature"),
        (None, None),
    ],
)
def test_an_option_of_the_engine_has_the_name_of_its_field(
    option: str | None, name: str | None
) -> None:
    body = error_body(InvalidInputError("of the engine", param=option))
    assert body["error"]["param"] == name
    fields = {*CompletionRequest.model_fields, *ChatCompletionRequest.model_fields}
    assert name is None or name in fields
    options = {field.name for field in dataclasses.fields(StreamOptions)}
    assert option in {*options, "input_ids", "temperature", None}
