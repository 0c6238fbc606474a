"""Codex, unchanged, against a live server: it runs what the model calls, and ends with its answer.

Only `make test-codex` runs this, because it installs 404 MB.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

PROGRAM = Path(__file__).parents[2] / "codex" / "node_modules" / ".bin" / "codex"
CONFIG = """
model = "fake"
model_provider = "soliton"
model_context_window = 200000

[model_providers.soliton]
name = "Soliton"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SOLITON_KEY"
"""
CALL = {"name": "exec_command", "arguments": {"cmd": "echo rain > weather; cat weather"}}

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "CODEX" not in os.environ,
        reason="needs 404 MB of Codex: `make test-codex` installs and runs it",
    ),
]


@pytest.fixture
def fake() -> FakeEngine:
    """Its model thinks and calls a tool; once there is a result, it says so."""
    fake = FakeEngine(max_seq_len=200_000)
    fake.writes(reasoning=True)
    call = f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>"
    encode_chat = fake.encode_chat

    def written(messages: Any, **options: Any) -> Any:
        has_result = messages[-1]["role"] == "tool"
        said = "<think>Done.</think>It rains." if has_result else f"<think>Look.</think>{call}"
        fake.model.script = said.encode()
        return encode_chat(messages, **options)

    fake.encode_chat = written  # type: ignore[method-assign]
    return fake


def test_codex_runs_a_command_and_answers(fake: FakeEngine, tmp_path: Path) -> None:
    home, directory = tmp_path / "home", tmp_path / "src"
    home.mkdir()
    directory.mkdir()
    with live_server(fake.as_engine, api_keys=["right"]) as server:
        (home / "config.toml").write_text(CONFIG.format(url=server.url))
        done = subprocess.run(
            [
                str(PROGRAM), "exec", "--json", "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox", "What is the weather?",
            ],
            cwd=directory,
            env={**os.environ, "CODEX_HOME": str(home), "HOME": str(home), "SOLITON_KEY": "right"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    said = [item["text"] for item in items if item["type"] == "agent_message"]
    thought = [item["text"] for item in items if item["type"] == "reasoning"]
    [command] = [item for item in items if item["type"] == "command_execution"]
    assert (thought, said) == (["Look.", "Done."], ["It rains."])
    assert (command["exit_code"], command["aggregated_output"]) == (0, "rain\n")
    assert (directory / "weather").read_text() == "rain\n"
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["cached_input_tokens"] > 0
