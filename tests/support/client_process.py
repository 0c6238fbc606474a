"""A client in a process of its own, against a live server: what it prints is what it saw."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.live_server import LiveServer

CLIENTS = Path(__file__).parents[1] / "clients"
NODE = Path(__file__).parents[1] / "node"
PAGES = Path(__file__).parents[1] / "pages"
PYTHON = CLIENTS / ".venv" / "bin" / "python"
API_KEY = "key"


def run_python(script: str, server: LiveServer, home: Path, *words: str) -> Any:
    """What tests/clients/SCRIPT.py printed. The client keeps its files in `home` and uses no other
    machine.
    """
    assert PYTHON.exists(), "the clients are not installed: `make test` does it"
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LANGSMITH_TRACING": "false",
        "OPENAI_API_KEY": API_KEY,
        "HOME": str(home),
        "HF_HOME": str(home),
        "LLM_USER_PATH": str(home),
    }
    return _seen([str(PYTHON), "-I", str(CLIENTS / f"{script}.py")], server, home, words, quiet)


def page_of(name: str) -> Path:
    """A file of another project under tests/pages. Skips the test if it could not be fetched."""
    path = PAGES / name
    if not path.exists():
        pytest.skip(f"tests/pages/{name} was not fetched: `make test` does it, from npm and PyPI")
    return path


def run_node(script: str, server: LiveServer) -> Any:
    """What tests/node/SCRIPT.mjs printed."""
    assert (NODE / "node_modules").exists(), (
        "the npm clients are not installed: `make test` does it, or npm install --prefix tests/node"
    )
    return _seen(["node", f"{script}.mjs"], server, NODE, (), {})


def _seen(
    argv: list[str],
    server: LiveServer,
    directory: Path,
    words: Sequence[str],
    environment: dict[str, str],
) -> Any:
    [model] = [card["id"] for card in server.get("/v1/models", **_AUTHORIZED).json["data"]]
    result = subprocess.run(
        [*argv, f"{server.url}/v1", model, *words],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


_AUTHORIZED = {"authorization": f"Bearer {API_KEY}"}
