"""POST /v1/messages on the wire: what the model is shown, the order of events, refusals."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HELLO: Any = {"messages": [{"role": "user", "content": "hello"}]}
USE: Any = {"type": "tool_use", "id": "call00001", "name": "clock", "input": {"zone": "UTC"}}
CLOCK: Any = {"name": "clock", "input_schema": {"type": "object"}}


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=2048)
    fake.model.script = b"one two three"
    return fake


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def events(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """(name, data) of each event; the name is the data's type too."""
    found = []
    for frame in body.decode().split("\n\n"):
        if frame.startswith("event: "):
            name, data = frame.removeprefix("event: ").split("\ndata: ")
            said = json.loads(data)
            assert said["type"] == name
            found.append((name, said))
    return found


def streamed(server: LiveServer, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    return events(server.post(MESSAGES, {**HELLO, "stream": True, **fields}).body)


def shown(fake: FakeEngine, server: LiveServer, **fields: Any) -> list[dict[str, Any]]:
    """The messages that the template gets."""
    answer = server.post(MESSAGES, {**HELLO, "max_tokens": 2, **fields})
    assert answer.status == 200, answer.body
    return [*fake.rendered["messages"]]


def refused(server: LiveServer, **fields: Any) -> dict[str, Any]:
    answer = server.post(MESSAGES, {**HELLO, "max_tokens": 2, **fields})
    assert answer.status == 400
    body: dict[str, Any] = answer.json
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    error: dict[str, Any] = body["error"]
    assert error["type"] == "invalid_request_error"
    return error


def test_events_come_in_order(server: LiveServer) -> None:
    told = streamed(server)
    names = [name for name, _ in told]
    n_deltas = names.count("content_block_delta")
    assert names == [
        *("message_start", "content_block_start"),
        *["content_block_delta"] * n_deltas,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert "".join(said["delta"]["text"] for _, said in told[2 : 2 + n_deltas]) == "one two three"
    start, end = told[0][1]["message"], told[-2][1]
    assert start["content"] == []
    assert start["usage"]["output_tokens"] == 0
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 14  # with the one that ends the text


def test_a_reply_without_text_has_no_block(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = b""
    assert [name for name, _ in streamed(server)] == [
        "message_start", "message_delta", "message_stop"
    ]  # fmt: skip
    assert server.post(MESSAGES, {**HELLO, "max_tokens": 9}).json["content"] == []


def test_what_else_may_be_said_of_tokens(server: LiveServer) -> None:
    asked = {"include": ["entropy", "cache", "timings", "seed"], "n_probs": 2}
    whole = server.post(MESSAGES, {**HELLO, **asked}).json
    told = streamed(server, **asked)
    entries = whole["content"][0]["logprobs"]
    assert [entry["token"] for entry in entries] == list("one two three")
    assert all(len(entry["top_logprobs"]) == 2 and "entropy" in entry for entry in entries)
    deltas = [said for name, said in told if name == "content_block_delta"]
    assert [entry for said in deltas for entry in said["logprobs"]] == entries
    assert {"cache", "seed", "timings"} <= set(whole)
    assert {"cache", "seed"} <= set(told[0][1]["message"])
    assert "timings" in told[-2][1]


def test_ids_of_tokens_stand_in_their_logprobs(server: LiveServer) -> None:
    body = {**HELLO, "return_token_ids": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    told = events(server.post(MESSAGES, body).body)
    entries = [each for _, said in told for each in said.get("logprobs", ())]
    assert [entry["token_id"] for entry in entries] == list(b"one two three")
    (warning,) = told[0][1]["message"]["warnings"]
    assert warning["param"] == "stream_options.include_usage"


def test_a_conversation_as_the_template_gets_it(fake: FakeEngine, server: LiveServer) -> None:
    result = {"type": "tool_result", "tool_use_id": "call00001"}
    text = {"type": "text", "text": "now", "cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"}
    hidden = {"type": "redacted_thinking", "data": "x"}
    messages = [
        {"role": "user", "content": [text, {**text, "text": "please"}]},
        {"role": "user", "content": "soon"},
        {"role": "assistant", "content": [thought, hidden, {**text, "text": "Yes."}, USE]},
        {"role": "user", "content": [{**result, "content": "noon", "is_error": True}, text]},
    ]
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    call = {"name": "clock", "arguments": '{"zone": "UTC"}'}
    assert shown(fake, server, messages=messages, system=system) == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "now\nplease\nsoon"},
        {
            "role": "assistant",
            "content": "Yes.",
            "tool_calls": [{"id": "call00001", "type": "function", "function": call}],
            "reasoning_content": "Hm.",
        },
        {
            "role": "tool", "tool_call_id": "call00001", "name": "clock", "content": "Error: noon"
        },
        {"role": "user", "content": "now"},
    ]  # fmt: skip


def test_the_reply_continues_the_assistants_last_message(
    fake: FakeEngine, server: LiveServer
) -> None:
    messages = [*HELLO["messages"], {"role": "assistant", "content": "It is"}]
    assert shown(fake, server, messages=messages)[-1]["content"] == "It is"
    assert fake.rendered["continue_final_message"]
    assert not fake.rendered["add_generation_prompt"]


@pytest.mark.parametrize("keeps", [False, True])
def test_an_agents_changing_header_is_left_out(fake: FakeEngine, keeps: bool) -> None:
    first = "x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;"
    system = [{"type": "text", "text": first}, {"type": "text", "text": "Be brief."}]
    with live_server(fake.as_engine, keep_billing_header=keeps) as server:
        turns = shown(fake, server, system=system)
        answer = server.post(MESSAGES, {**HELLO, "system": system}).json
        counted = server.post(COUNT, {**HELLO, "system": system}).json["input_tokens"]
        plain = server.post(COUNT, {**HELLO, "system": "Be brief."}).json["input_tokens"]
    assert turns[0]["content"] == (f"{first}\nBe brief." if keeps else "Be brief.")
    assert ("warnings" in answer) is not keeps
    assert (counted == plain) is not keeps
    if not keeps:
        (warning,) = answer["warnings"]
        assert warning["param"] == "system[0].text"
        assert "x-anthropic-billing-header" in warning["message"]


def test_more_tokens_than_fit_are_asked_for(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = None  # it never ends
    for wanted, reason in ((8, "max_tokens"), (100_000, "model_context_window_exceeded")):
        answer = server.post(MESSAGES, {**HELLO, "max_tokens": wanted}).json
        assert answer["stop_reason"] == reason
    usage = answer["usage"]
    assert sum(usage.values()) == fake.max_seq_len


def test_a_call_that_is_cut_off_is_not_to_be_made(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = (
        b'<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call>'
    )
    cut = {"tools": [CLOCK], "max_tokens": 55}
    answer = server.post(MESSAGES, {**HELLO, **cut}).json
    (block,) = answer["content"]
    assert answer["stop_reason"] == "max_tokens"
    assert block["input"] == {}
    assert block["partial_json"].startswith('{"zo')
    deltas = [said["delta"] for name, said in streamed(server, **cut) if "delta" in said]
    assert "".join(delta.get("partial_json", "") for delta in deltas) == block["partial_json"]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "empty"),
        (
            {"messages": [{"role": "user", "content": [USE]}]},
            "messages[0].content[0]",
            "type text or tool_result",
        ),
        (
            {"messages": [*HELLO["messages"], {"role": "assistant", "content": [USE]}]},
            "messages[1]",
            "tool_result must follow",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}
                ]
            },
            "messages[0].content[0].tool_use_id",
            "not the id of a tool_use",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]},
            "messages[0].content[0].text",
            "",
        ),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "tools[0].type",
            "runs no",
        ),
        ({"tools": [CLOCK, CLOCK]}, "tools[1].name", "same name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "no tools"),
        ({"tools": [CLOCK], "tool_choice": {"type": "tool"}}, "tool_choice.name", "missing"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "not supported"),
        ({"n": 2}, "n", "one reply"),
        ({"system": [{"type": "image"}]}, "system", "blocks of type text"),
        ({"temperature": -1}, "temperature", ""),
        (
            {
                "output_format": {"type": "json_schema", "schema": {"type": "nothing"}},
            },
            "output_format.schema",
            "",
        ),
    ],
)
def test_refusals_name_the_field(
    server: LiveServer, fields: dict[str, Any], param: str, words: str
) -> None:
    error = refused(server, **fields)
    assert error["param"] == param
    assert words in error["message"]


def test_a_thread_is_refused_in_the_way_that_clients_know(server: LiveServer) -> None:
    error = refused(server, thread={"type": "new"})
    assert error["details"] == {
        "error_code": "thread_unsupported_request", "unsupported": ["thread"]
    }  # fmt: skip


def test_names_of_anthropics_models_are_answered_by_this_one(server: LiveServer) -> None:
    answer = server.post(MESSAGES, {**HELLO, "model": "claude-sonnet-5"}).json
    assert answer["model"] == "fake"
    assert answer["warnings"][0]["param"] == "model"
    missing = server.post(MESSAGES, {**HELLO, "model": "gpt-5"})
    assert (missing.status, missing.json["error"]["type"]) == (404, "not_found_error")


def test_errors_of_every_layer_have_the_shape(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, max_body_bytes=1024) as server:
        answers = {
            "not_found_error": server.post(f"{MESSAGES}/batches", HELLO),
            "request_too_large": server.post(MESSAGES, {**HELLO, "system": "x" * 4096}),
            "invalid_request_error": server.post(MESSAGES, {"messages": "x"}),
        }
    for type_, answer in answers.items():
        assert answer.json["type"] == "error"
        assert answer.json["error"]["type"] == type_
        assert answer.json["request_id"] == answer.headers["request-id"]
        assert int(answer.headers["content-length"]) == len(answer.body)


def test_a_kept_stream_is_read_again_and_branched(fake: FakeEngine, server: LiveServer) -> None:
    first = server.post(MESSAGES, {**HELLO, "stream": True, "store": True, "temperature": 0})
    (id_,) = {said["message"]["id"] for name, said in events(first.body) if name == "message_start"}
    again = server.get(f"/v1/streams/{id_}/events")
    frames = [frame.partition("\n")[2] for frame in again.body.decode().split("\n\n")]
    assert events("\n\n".join(frames).encode()) == events(first.body)
    branch = server.post(f"/v1/streams/{id_}/branch", {"at": 4, "stream": False})
    assert branch.status == 200, branch.body
    assert branch.json["content"][0]["text"].startswith("one ")
