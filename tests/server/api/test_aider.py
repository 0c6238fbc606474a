"""Aider, unchanged, against a live server: it shows what the model thinks, and makes the edit that
the model writes.

Only `make test-aider` runs this, because it installs 108 packages.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_process import API_KEY
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

PROGRAM = Path(__file__).parents[2] / "aider" / ".venv" / "bin" / "aider"
EDIT = """<think>Look.</think>The city is Oslo.

weather.py
```python
<<<<<<< SEARCH
city = "Rome"
=======
city = "Oslo"
>>>>>>> REPLACE
```
"""

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "AIDER" not in os.environ,
        reason="needs Aider and 108 packages: `make test-aider` installs and runs it",
    ),
]


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=60_000)
    fake.writes(reasoning=True)
    fake.model.script = EDIT.encode()
    return fake


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine, api_keys=(API_KEY,)) as server:
        yield server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weather.py"
    path.write_text('city = "Rome"\n')
    return path


def process(server: LiveServer, file: Path, *words: str, model: str = "fake") -> Any:
    """Aider with one message, beside `file`."""
    command = [
        str(PROGRAM), "--model", f"openai/{model}", "--openai-api-base", f"{server.url}/v1",
        "--openai-api-key", API_KEY, "--no-git", "--yes-always", "--no-show-model-warnings",
        "--no-check-update", "--no-analytics", "--edit-format", "diff", "--message",
        "Make it Oslo.", *words, file.name,
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        cwd=file.parent,
        env={**os.environ, "HOME": str(file.parent), "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("words", [(), ("--no-stream",)])
def test_aider_thinks_and_edits(server: LiveServer, file: Path, words: tuple[str, ...]) -> None:
    with process(server, file, *words) as aider:
        shown = aider.communicate(timeout=200)[0]
    assert file.read_text() == 'city = "Oslo"\n', shown
    assert shown.index("Look.") < shown.index("The city is Oslo.")
    assert "THINKING" in shown


def test_aider_tells_errors(server: LiveServer, file: Path) -> None:
    with process(server, file, model="none") as aider:
        shown = aider.communicate(timeout=200)[0]
    assert "does not exist" in " ".join(shown.split())
    assert file.read_text() == 'city = "Rome"\n'


def test_aider_that_is_interrupted_ends_the_work(
    fake: FakeEngine, server: LiveServer, file: Path
) -> None:
    fake.model.script = None
    fake.model.token_time = 0.005
    with process(server, file) as aider:
        wait_until(lambda: server.running is not None, seconds=60)
        aider.send_signal(signal.SIGINT)
        wait_until(lambda: server.running is None, seconds=10)
        aider.kill()
