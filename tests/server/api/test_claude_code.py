"""Claude Code, unchanged, against a live server: it runs what the model calls, and ends with its
answer.

Only `make test-claude-code` runs this, because it installs 384 MB.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

PROGRAM = Path(__file__).parents[2] / "claude_code" / "node_modules" / ".bin" / "claude"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63f8cfc0f01f0005050100b1cd92b50000000049454e44ae426082"
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        "CLAUDE_CODE" not in os.environ,
        reason="needs 384 MB of Claude Code: `make test-claude-code` installs and runs it",
    ),
]


def scripted(*steps: str | dict[str, Any]) -> FakeEngine:
    """A model that writes one of `steps`, calls or texts, more with each result that it gets."""
    fake = FakeEngine(max_seq_len=200_000)
    fake.writes(reasoning=True)
    encode_chat = fake.encode_chat

    def written(messages: Any, **options: Any) -> Any:
        step = steps[sum(message["role"] == "tool" for message in messages)]
        if isinstance(step, dict):
            step = f"<think>Look.</think><tool_call>\n{json.dumps(step)}\n</tool_call>"
        fake.model.script = step.encode()
        return encode_chat(messages, **options)

    fake.encode_chat = written  # type: ignore[method-assign]
    return fake


def asked(fake: FakeEngine, folder: Path) -> list[dict[str, Any]]:
    """What Claude Code reports, asked for the weather in `folder`/src, event by event."""
    home, source = folder / "home", folder / "src"
    for directory in (home, source):
        directory.mkdir(exist_ok=True)
    with live_server(fake.as_engine, api_keys=["right"]) as server:
        own = {
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_AUTH_TOKEN": "right",
            "ANTHROPIC_MODEL": "fake",
            "ANTHROPIC_SMALL_FAST_MODEL": "fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        done = subprocess.run(
            [
                str(PROGRAM), "-p", "What is the weather?", "--output-format", "stream-json",
                "--verbose", "--allowedTools", "Bash Read ToolSearch",
            ],
            cwd=source,
            env={"PATH": os.environ["PATH"], **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def blocks(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """All blocks of one kind, of the model's messages and of the results."""
    contents = [event["message"]["content"] for event in events if "message" in event]
    return [block for content in contents for block in content if block["type"] == kind]


def test_claude_code_runs_a_command_and_answers(tmp_path: Path) -> None:
    command = {"command": "echo rain > weather; cat weather", "description": "Looks"}
    call = {"name": "Bash", "arguments": command}
    events = asked(scripted(call, "<think>Done.</think>It rains."), tmp_path)
    assert [block["thinking"] for block in blocks(events, "thinking")] == ["Look.", "Done."]
    (use,) = blocks(events, "tool_use")
    (result,) = blocks(events, "tool_result")
    assert (use["name"], use["input"]) == ("Bash", command)
    assert (result["content"], result["is_error"]) == ("rain", False)
    assert (tmp_path / "src" / "weather").read_text() == "rain\n"
    end = events[-1]
    assert (end["type"], end["is_error"], end["result"]) == ("result", False, "It rains.")
    assert end["usage"]["cache_read_input_tokens"] > 10_000, "the second prompt begins as the first"


def test_claude_code_loads_a_tool_and_reads_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "src" / "a.png"
    picture.parent.mkdir()
    picture.write_bytes(PIXEL)
    fake = scripted(
        {"name": "ToolSearch", "arguments": {"query": "select:NotebookEdit"}},
        {"name": "Read", "arguments": {"file_path": str(picture)}},
        "<think>Done.</think>Nothing to see.",
    )
    events = asked(fake, tmp_path)
    assert events[-1]["result"] == "Nothing to see."
    told = [turn["content"] for turn in fake.rendered["messages"] if turn["role"] == "tool"]
    assert json.loads(told[0])["name"] == "NotebookEdit"
    assert told[1] == "[image: this model can only read text]"
