"""POST /v1/responses on the wire: what the model is shown, the order of events, refusals."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from engine import Engine, EngineError
from server.schema.responses import ResponsesRequest
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server
from tests.support.response_events import PATH, names, read_events, streamed, whole, without_ids

CODEX = json.loads((Path(__file__).parents[2] / "clients" / "requests" / "codex.json").read_text())
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
PATCH: Any = {"type": "custom", "name": "patch", "description": "Edits."}
CALL = b'<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
MESSAGE_EVENTS = [
    *("output_item.added", "content_part.added", "output_text.delta"),
    *("output_text.done", "content_part.done", "output_item.done"),
]


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=2048)
    fake.model.script = b"one two three"
    return fake


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


@pytest.fixture(scope="module")
def any_server() -> Iterator[LiveServer]:
    """For requests that never reach the engine."""
    with live_server(FakeEngine(max_seq_len=2048).as_engine) as server:
        yield server


def shown(fake: FakeEngine, server: LiveServer, **fields: Any) -> list[dict[str, Any]]:
    """The messages that the template gets."""
    whole(server, **{"max_output_tokens": 2, **fields})
    return [*fake.rendered["messages"]]


def refused(server: LiveServer, **fields: Any) -> dict[str, Any]:
    answer = server.post(PATH, {"input": "hello", "max_output_tokens": 2, **fields})
    assert answer.status == 400, answer.body
    return answer.error


def ignored(response: dict[str, Any]) -> list[str]:
    return [warning["param"] for warning in response.get("warnings", ())]


def test_events_come_in_order(server: LiveServer) -> None:
    told = streamed(server)
    assert names(told) == ["created", "in_progress", *MESSAGE_EVENTS, "completed"]
    assert "".join(event.get("delta", "") for event in told) == "one two three"
    started, ended = told[0]["response"], told[-1]["response"]
    assert (started["status"], started["output"], started["usage"]) == ("in_progress", [], None)
    assert (ended["status"], ended["error"], ended["incomplete_details"]) == (
        "completed", None, None,
    )  # fmt: skip
    assert ended["usage"]["output_tokens"] == 14  # with the one that ends the text
    [item] = ended["output"]
    assert item["content"][0]["text"] == "one two three"
    assert {event["item_id"] for event in told if "item_id" in event} == {item["id"]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n_probs": 2, "include": ["entropy", "message.output_text.logprobs"]},
        {"top_logprobs": 1, "tools": [WEATHER, PATCH]},
        {"reasoning": {"summary": "auto"}},
        {"max_output_tokens": 20},
        {"stop": ["ell"], "include": ["stop", "seed", "cache"], "seed": 3},
        {"banned_strings": ["wo"], "include": ["suppressed"]},
    ],
)
def test_streamed_and_whole_responses_agree(
    fake: FakeEngine, server: LiveServer, fields: dict[str, Any]
) -> None:
    fake.writes(reasoning=True)
    custom = b'<tool_call>\n{"name": "patch", "arguments": {"input": "a\\nb"}}\n</tool_call>'
    for script in (b"<think>Hm.</think>Well, well.\n" + CALL + custom, b"two words", b""):
        fake.model.script = script
        told, answer = streamed(server, **fields), whole(server, **fields)
        ended = told[-1]["response"]
        assert server.get(f"{PATH}/{ended['id']}").json == ended
        # The prompt of the second one is cached.
        assert without_ids({**ended, "cache": None}) == without_ids({**answer, "cache": None})
        assert {**ended["usage"], "input_tokens_details": 0} == {
            **answer["usage"], "input_tokens_details": 0,
        }  # fmt: skip
        done = [event["item"] for event in told if event["type"].endswith("item.done")]
        assert done == ended["output"]
        check_deltas(told, ended["output"])


def check_deltas(told: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    """What was streamed of each item is what it says as a whole."""
    for index, item in enumerate(output):
        of_item = [event for event in told if event.get("output_index") == index]
        text = "".join(event["delta"] for event in of_item if "delta" in event)
        parts = item.get("content") or item.get("summary") or [{}]
        said = parts[0].get("text") or item.get("arguments") or item.get("input") or ""
        assert text == said
        entries = [
            entry for event in of_item if "delta" in event for entry in event_logprobs(event)
        ]
        assert entries == (parts[0].get("logprobs") or item.get("logprobs") or [])


def event_logprobs(event: dict[str, Any]) -> list[Any]:
    return [*(event.get("logprobs") or ())]


def test_reasoning_stands_in_its_item(fake: FakeEngine, server: LiveServer) -> None:
    fake.writes(reasoning=True)
    fake.model.script = b"<think>Hm.</think>Well."
    told = streamed(server)
    assert names(told)[2:8] == [
        "output_item.added", "content_part.added", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
    ]  # fmt: skip
    thought, said = told[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert (thought["summary"], thought["encrypted_content"]) == ([], None)
    assert said["content"][0]["text"] == "Well."
    assert told[-1]["response"]["usage"]["output_tokens_details"]["reasoning_tokens"] == 18
    told = streamed(server, reasoning={"summary": "auto", "effort": "low"})
    assert names(told)[2:8] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
    ]  # fmt: skip
    thought = told[-1]["response"]["output"][0]
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert thought["content"] == []
    assert ignored(told[0]["response"]) == ["reasoning.summary", "reasoning.effort"]
    assert fake.rendered["template_kwargs"]["reasoning_effort"] == "low"
    whole(server, reasoning={"effort": "none"})
    assert fake.rendered["template_kwargs"]["enable_thinking"] is False


def test_calls_are_items_of_the_kind_of_their_tool(fake: FakeEngine, server: LiveServer) -> None:
    shell = b'{"name": "local_shell", "arguments": {"command": ["ls", "-l"], "workdir": "/x"}}'
    space = b'{"name": "files__read", "arguments": {"path": "a"}}'
    patch = b'{"name": "patch", "arguments": {"input": "+\\u00e9"}}'
    calls = b"".join(b"<tool_call>\n%b\n</tool_call>\n" % call for call in (patch, shell, space))
    fake.model.script = b"So:\n" + CALL + b"\n" + calls
    read = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    namespace = {"type": "namespace", "name": "files", "description": "Files.", "tools": [read]}
    told = streamed(server, tools=[WEATHER, PATCH, {"type": "local_shell"}, namespace])
    said, weather, custom, command, inner = told[-1]["response"]["output"]
    assert said["content"][0]["text"] == "So:"
    assert (weather["type"], weather["name"]) == ("function_call", "weather")
    assert json.loads(weather["arguments"]) == {"city": "Oslo"}
    assert (custom["type"], custom["name"], custom["input"]) == ("custom_tool_call", "patch", "+é")
    assert command["type"] == "local_shell_call"
    assert command["action"]["command"] == ["ls", "-l"]
    assert command["action"]["working_directory"] == "/x"
    assert (inner["type"], inner["namespace"], inner["name"]) == ("function_call", "files", "read")
    assert len({item["call_id"] for item in (weather, custom, command, inner)}) == 4
    assert [name for name in names(told) if "_call" in name] == [
        "function_call_arguments.delta", "function_call_arguments.done",
        "custom_tool_call_input.delta", "custom_tool_call_input.done",
        "function_call_arguments.delta", "function_call_arguments.done",
    ]  # fmt: skip


def test_a_tool_is_called_where_it_must_be(server: LiveServer, bundled_engine: Engine) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[ab]{2}"}
    with live_server(bundled_engine) as server:
        for choice in ("required", {"type": "custom", "name": "patch"}):
            answer = whole(server, tools=[{**PATCH, "format": form}], tool_choice=choice)
            call = answer["output"][0]
            assert (call["type"], call["status"]) == ("custom_tool_call", "completed")
            assert set(call["input"]) <= set("ab")
            assert len(call["input"]) == 2
        answer = whole(
            server,
            tools=[WEATHER, PATCH],
            tool_choice={
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "weather"}],
            },
        )
        assert {item["name"] for item in answer["output"]} == {"weather"}


def test_the_text_follows_a_schema(bundled_engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["size"],
        "additionalProperties": False,
    }
    with live_server(bundled_engine) as server:
        form = {"type": "json_schema", "name": "size", "schema": schema, "strict": True}
        answer = whole(server, text={"format": form})
        text = answer["output"][0]["content"][0]["text"]
        assert set(json.loads(text)) == {"size"}
        assert answer["text"]["format"] == form
        text = whole(server, text={"format": {"type": "json_object"}}, max_output_tokens=3)
        assert text["output"][0]["content"][0]["text"].startswith("{")


def test_a_conversation_as_the_template_gets_it(fake: FakeEngine, server: LiveServer) -> None:
    part = {"type": "input_text", "text": "now"}
    items = [
        {"type": "message", "role": "developer", "content": [{**part, "text": "Be kind."}]},
        {"role": "user", "content": [part, {**part, "text": "please"}]},
        {"role": "user", "content": "soon"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "+é"},
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c3",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 9},
        },
        {"type": "function_call_output", "call_id": "c1", "output": [{**part, "text": "noon"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "local_shell_call_output", "id": "c3", "output": "a\n"},
        {"role": "user", "content": "and?"},
    ]
    calls = [
        ("c1", "clock", "{}"),
        ("c2", "patch", '{"input": "+é"}'),
        ("c3", "local_shell", '{"command": ["ls"], "timeout_ms": 9}'),
    ]
    assert shown(fake, server, instructions="Be brief.", input=items) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "now\nplease\n\nsoon"},
        {
            "role": "assistant",
            "content": "Yes.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
                for id_, name, arguments in calls
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "clock", "content": "noon"},
        {"role": "tool", "tool_call_id": "c2", "name": "patch", "content": "done"},
        {"role": "tool", "tool_call_id": "c3", "name": "local_shell", "content": "a\n"},
        {"role": "user", "content": "and?"},
    ]


def test_reasoning_that_cannot_be_read_is_left_out(fake: FakeEngine, server: LiveServer) -> None:
    hidden = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    told = {**hidden, "summary": [{"type": "summary_text", "text": "Hm."}]}
    user = {"role": "user", "content": "a"}
    answer = whole(server, input=[user, hidden, told, user])
    assert ignored(answer) == ["input[1]"]
    assert fake.rendered["messages"][1]["reasoning_content"] == "Hm."


def test_a_conversation_that_does_not_fit_loses_its_beginning(
    fake: FakeEngine, server: LiveServer
) -> None:
    long = [
        {"role": role, "content": str(i) * 300} for i in range(5) for role in ("user", "assistant")
    ]
    call = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "noon" * 200}
    items = [*long, call, result, {"role": "user", "content": "last"}]
    error = refused(server, input=items, instructions="Be brief.")
    assert error["code"] == "context_length_exceeded"
    answer = whole(
        server, input=items, instructions="Be brief.", truncation="auto", max_output_tokens=4
    )
    assert ignored(answer) == ["truncation"]
    told, *said = fake.rendered["messages"]
    assert told == {"role": "system", "content": "Be brief."}
    assert said[-1]["content"] == "last"
    assert said[0]["role"] != "tool"
    assert 2 < len(said) < 12
    assert not ignored(whole(server, truncation="auto"))
    error = refused(server, input="x" * 4000, truncation="auto")
    assert error["code"] == "context_length_exceeded"


def test_a_response_that_is_cut_off_is_incomplete(fake: FakeEngine, server: LiveServer) -> None:
    for fields in ({"max_output_tokens": 8}, {"max_tokens": 8}):
        told = streamed(server, **fields)
        response = told[-1]["response"]
        assert told[-1]["type"] == "response.incomplete"
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][0]["status"] == "incomplete"
    fake.model.script = CALL
    response = whole(server, tools=[WEATHER], max_output_tokens=55)
    [call] = response["output"]
    assert (response["status"], call["status"]) == ("incomplete", "incomplete")
    assert call["arguments"].startswith('{"ci')


def test_logprobs_are_those_of_the_text(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.script = b"Well.\n" + CALL
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "tools": [WEATHER]}
    said, call = whole(server, **asked)["output"]
    entries = said["content"][0]["logprobs"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == b"Well."
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert "logprobs" not in call
    said, call = whole(server, **asked, n_probs=2)["output"]
    assert bytes(byte for entry in call["logprobs"] for byte in entry["bytes"]).endswith(CALL)


def test_what_else_may_be_said(server: LiveServer) -> None:
    asked = ["entropy", "cache", "timings", "seed", "progress", "prompt", "speculation"]
    told = streamed(server, include=asked)
    entries = [entry for event in told for entry in event.get("logprobs", ())]
    assert all("entropy" in entry for entry in entries)
    assert {"cache", "seed", "rendered_prompt"} <= set(told[-1]["response"])
    assert {"timings", "speculation"} <= set(told[-1]["response"])
    assert [event for event in told if "prompt_progress" in event]


def test_an_engine_that_fails_is_told(fake: FakeEngine, server: LiveServer) -> None:
    for store in (True, False):
        fake.faults[5] = EngineError("it broke")
        told = streamed(server, store=store)
        assert told[-1]["type"] == "response.failed"
        response = told[-1]["response"]
        assert response["error"]["code"] == "server_error"
        assert response["error"]["type"] == "engine_error"
        assert response["output"][0]["content"][0]["text"] == "one t"
        assert response["output"][0]["status"] == "incomplete"
    assert whole(server)["status"] == "completed"


def test_tokens_of_a_prompt_are_counted(server: LiveServer) -> None:
    body = {"input": "hello", "instructions": "Be brief.", "tools": [WEATHER]}
    counted = server.post(f"{PATH}/input_tokens", body).json
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": whole(server, **body)["usage"]["input_tokens"],
    }
    stored = whole(server)
    more = {"input": "more", "previous_response_id": stored["id"]}
    counted = server.post(f"{PATH}/input_tokens", more).json["input_tokens"]
    assert counted == whole(server, **more)["usage"]["input_tokens"]
    estimated = server.post("/v1/estimate", more).json
    assert (estimated["object"], estimated["prompt_tokens"]) == ("estimate", counted)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"input": None}, "input", "empty"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role", "missing"),
        ({"input": [{"role": "user"}]}, "input[0].content", "missing"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
            "images",
        ),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0].type", "OpenAI"),
        (
            {"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
            "input[0].call_id",
            "before it",
        ),
        (
            {
                "input": [
                    {"role": "user", "content": "x"},
                    {"type": "function_call", "call_id": "x", "name": "y", "arguments": "{}"},
                ]
            },
            "input[1]",
            "result must follow",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id", "stored"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "names no response"),
        ({"tools": [{"type": "file_search"}]}, "tools[0].type", "runs no tools"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type", "runs no tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name", "same name"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type", "runs no tools"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}},
            "tool_choice",
            "not among",
        ),
        (
            {
                "tools": [
                    {**PATCH, "format": {"type": "grammar", "syntax": "gbnf", "definition": "x"}}
                ]
            },
            "tools[0].format.syntax",
            "lark or regex",
        ),
        ({"conversation": "conv_1"}, "conversation", "previous_response_id"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "templates"),
        ({"moderation": {"policy": {}}}, "moderation", "moderates"),
        ({"include": ["reasoning.encrypted_content"]}, "include", "encrypted"),
        ({"include": ["nothing"]}, "include", "must be one of"),
        ({"n": 2}, "n", "one reply"),
        ({"max_tokens": 3}, "max_output_tokens", "differ"),
        ({"background": True, "store": False}, "background", "store"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}},
            "text.format.schema",
            "",
        ),
        ({"truncation": "some"}, "truncation", ""),
        ({"strict": True, "reasoning": {"effort": "low"}}, "reasoning.effort", "strict"),
        ({"strict": True, "tools": [{"type": "web_search"}]}, "tools[0]", "strict"),
    ],
)
def test_refusals_name_the_field(
    any_server: LiveServer, fields: dict[str, Any], param: str, words: str
) -> None:
    error = refused(any_server, **fields)
    assert error["param"] == param
    assert words in error["message"]


def test_every_published_field_is_known() -> None:
    published = set(get_type_hints(ResponseCreateParamsBase)) | {"stream"}
    assert published <= set(ResponsesRequest.model_fields)


def test_fields_without_effect_are_told(server: LiveServer) -> None:
    answer = whole(
        server,
        store=False,
        include=["reasoning.encrypted_content", "web_search_call.action.sources"],
        context_management=[{"type": "compaction"}],
        image={"context_compression": "auto"},
        text={"verbosity": "low"},
        tools=[{"type": "web_search", "external_web_access": False}],
        service_tier="auto",
        prompt_cache_key="x",
        safety_identifier="y",
        max_tool_calls=3,
        mystery=1,
    )
    assert ignored(answer) == [
        "mystery", "context_management", "image", "include.reasoning.encrypted_content",
        "include.web_search_call.action.sources", "tools[0]", "text.verbosity",
    ]  # fmt: skip
    assert answer["tools"] == [{"type": "web_search", "external_web_access": False}]
    assert (answer["prompt_cache_key"], answer["max_tool_calls"]) == ("x", 3)


def test_what_was_asked_for_is_told(server: LiveServer) -> None:
    asked = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 4,
        "tools": [WEATHER],
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "truncation": "auto",
        "metadata": {"topic": "x"},
        "user": "me",
    }
    answer = whole(server, **asked, reasoning={"effort": "none"})
    assert {name: answer[name] for name in asked} == asked
    assert answer["reasoning"] == {"effort": "none", "summary": None}
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "medium"}


@pytest.mark.parametrize("name", [name for name in CODEX if name != "source"])
def test_codexs_requests_are_answered(fake: FakeEngine, server: LiveServer, name: str) -> None:
    fake.writes(reasoning=True)
    fake.model.script = (
        b'<think>Hm.</think><tool_call>\n{"name": "apply_patch", "arguments": '
        b'{"input": "*** Begin Patch\\n*** Delete File: a\\n*** End Patch\\n"}}\n</tool_call>'
    )
    headers, body = CODEX[name]["headers"], CODEX[name]["body"]
    answer = server.post(CODEX[name]["path"], {**body, "model": "fake"}, **headers)
    assert answer.status == 200, answer.body
    told = read_events(answer.body)
    response = told[-1]["response"]
    assert told[-1]["type"] == "response.completed"
    assert server.get(f"{PATH}/{response['id']}").status == 404
    thought, *calls = [event["item"] for event in told if event["type"].endswith("item.done")]
    assert thought["summary" if body["reasoning"].get("summary") else "content"][0]["text"] == "Hm."
    if any(tool.get("name") == "apply_patch" for tool in body["tools"]):
        [call] = calls
        assert call["type"] == "custom_tool_call"
        assert call["input"].startswith("*** Begin Patch\n")
    assert ignored(response) == CODEX[name]["ignored"]
    turns = fake.rendered["messages"]
    assert [turn["role"] for turn in turns] == CODEX[name]["roles"]
    assert turns[0]["content"].startswith(body.get("instructions", "You are a coding agent."))
