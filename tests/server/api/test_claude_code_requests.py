"""Claude Code's requests, as it sends them, and what the model is shown of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.api.test_anthropic_wire import events
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

RECORDED = json.loads(
    (Path(__file__).parents[2] / "clients" / "requests" / "claude_code.json").read_text()
)
REQUESTS = RECORDED["requests"]
IGNORED = {
    "context_management", "system[0].text", "thinking", "thinking.display", "output_config.effort"
}  # fmt: skip
CALL = '<tool_call>\n{"name": "WebSearch", "arguments": {"query": "Oslo"}}\n</tool_call>'


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=4096)
    fake.writes(reasoning=True)
    fake.model.script = b"<think>Hm.</think>It rains."
    return fake


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def sent(server: LiveServer, name: str, **changes: Any) -> Answer:
    body = {**REQUESTS[name], **changes}
    return server.post(RECORDED["path"], body, **RECORDED["headers"])


@pytest.mark.parametrize("name", ["first", "result", "found_tools", "picture"])
def test_a_request_is_answered(server: LiveServer, name: str) -> None:
    told = events(sent(server, name).body)
    assert [told[0][0], told[-1][0]] == ["message_start", "message_stop"]
    texts = [said["delta"].get("text", "") for event, said in told if event.endswith("_delta")]
    assert "".join(texts) == "It rains."
    assert told[-2][1]["delta"]["stop_reason"] == "end_turn"


@pytest.mark.parametrize("name", ["first", "result", "found_tools", "picture"])
def test_what_has_no_effect_is_told(server: LiveServer, name: str) -> None:
    start = events(sent(server, name).body)[0][1]
    told = {warning["param"] for warning in start["message"]["warnings"]}
    seen = {"messages[5].content[0].content[0]"} if name == "picture" else set()
    assert told == IGNORED | seen


def test_the_prompt_goes_on_where_it_was(fake: FakeEngine, server: LiveServer) -> None:
    """Although a header in it differs from request to request."""
    answers = [events(sent(server, "first").body)]
    system = [dict(block) for block in REQUESTS["result"]["system"]]
    system[0]["text"] = system[0]["text"].replace("cch=0a1b2", "cch=33333")
    answers.append(events(sent(server, "result", system=system).body))
    usages = [told[0][1]["message"]["usage"] for told in answers]
    assert usages[1]["cache_read_input_tokens"] >= usages[0]["input_tokens"] - len("assistant: ")
    assert fake.rendered["messages"][0] == {
        "role": "system", "content": "You are an agent.\n\nHelp with this repository."
    }  # fmt: skip


def test_a_tool_that_was_found_is_described_where_it_was_found(
    fake: FakeEngine, server: LiveServer
) -> None:
    """And may be called. The beginning of the prompt does not change with it."""
    fake.model.script = CALL.encode()
    first = shown_tools(fake, server, "first")
    answer = sent(server, "found_tools", stream=False).json
    assert shown_tools(fake, server, "found_tools") == first == ["Bash", "Read", "ToolSearch"]
    (result,) = [turn for turn in fake.rendered["messages"] if turn["role"] == "tool"]
    found = [json.loads(line) for line in result["content"].splitlines()]
    assert [tool["name"] for tool in found] == ["WebSearch", "NotebookEdit"]
    assert found[0]["parameters"]["required"] == ["query"]
    (use,) = answer["content"]
    assert (use["name"], use["input"]) == ("WebSearch", {"query": "Oslo"})
    hidden = sent(server, "first", stream=False).json["content"]
    assert [block["type"] for block in hidden] == ["text"], "it does not know that tool"


def shown_tools(fake: FakeEngine, server: LiveServer, name: str) -> list[str]:
    assert sent(server, name, stream=False).status == 200
    return [tool["function"]["name"] for tool in fake.rendered["tools"]]


def test_a_tool_that_is_referred_to_must_be_there(server: LiveServer) -> None:
    tools = [tool for tool in REQUESTS["found_tools"]["tools"] if tool["name"] != "WebSearch"]
    answer = sent(server, "found_tools", tools=tools)
    assert (answer.status, answer.json["error"]["param"]) == (
        400, "messages[3].content[0].content[0].tool_name"
    )  # fmt: skip


def test_of_a_picture_the_model_reads_that_there_is_one(
    fake: FakeEngine, server: LiveServer
) -> None:
    assert sent(server, "picture").status == 200
    assert fake.rendered["messages"][-1]["content"] == "[image: this model can only read text]"
    body = {key: REQUESTS["picture"][key] for key in ("messages", "tools", "max_tokens")}
    strict = server.post(RECORDED["path"], {**body, "strict": True})
    assert strict.status == 400
    assert strict.json["error"]["param"] == "messages[5].content[0].content[0]"


def test_a_tool_of_anthropics_is_refused_with_a_sentence(server: LiveServer) -> None:
    """Claude Code gives it to the model as the result of its call."""
    answer = sent(server, "web_search")
    assert (answer.status, answer.json["error"]["param"]) == (400, "tools[0].type")
    assert "runs no tools" in answer.json["error"]["message"]


def test_tokens_are_counted(server: LiveServer) -> None:
    counted = server.post(RECORDED["count"]["path"], RECORDED["count"]["body"])
    assert counted.status == 200
    assert counted.json["input_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_that_is_omitted_leaves_an_empty_block(server: LiveServer, stream: bool) -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    answer = sent(server, "first", thinking=thinking, stream=stream, n_probs=1)
    if not stream:
        thought, text = answer.json["content"]
        assert (thought["thinking"], thought["signature"]) == ("", "unsigned")
        assert thought["logprobs"] == []
        assert text["text"] == "It rains."
        return
    deltas = [said["delta"] for name, said in events(answer.body) if name == "content_block_delta"]
    assert "thinking_delta" not in {delta["type"] for delta in deltas}
    assert deltas[0] == {"type": "signature_delta", "signature": "unsigned"}
