"""/docs, and pages of other origins, in a real browser; tests/page has the page at /ui."""

import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import API_KEY, run_python
from tests.support.live_server import Answer, LiveServer, live_server

CHROMIUM = shutil.which("chromium")
# The least contrast of text that WCAG 2 calls sufficient (AA).
CONTRAST = 4.5

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"),
]


class Lines(logging.Handler):
    """What a logger was given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(scope="module")
def log() -> Iterator[list[str]]:
    handler, logger = Lines(), logging.getLogger("server.http.cors")
    logger.addHandler(handler)
    yield handler.texts
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def seen(server: LiveServer, log: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_python("with_chromium", server, tmp_path_factory.mktemp("open"), str(CHROMIUM))


def test_the_browser_complains_of_nothing(seen: Any) -> None:
    assert seen["docs"]["notes"] == []


def test_the_command_works_as_it_is_shown(seen: Any) -> None:
    answer = run(seen["docs"]["command"])
    assert answer.json["object"] == "text_completion"
    assert answer.json["model"] == "soliton-default"


def run(command: str) -> Answer:
    result = subprocess.run(["sh", "-c", f"{command} -sS"], capture_output=True, check=True)
    return Answer(200, {}, result.stdout)


def test_docs_show_the_same_without_a_network(seen: Any, server: LiveServer) -> None:
    documents = seen["docs"]
    paths = server.get("/openapi.json").json["paths"]
    assert {route[route.index("/") :] for route in documents["routes"]} == set(paths)
    assert documents["same"]
    assert documents["contrast"] >= CONTRAST


def test_a_page_opened_as_a_file_is_refused_and_the_log_says_why(seen: Any, log: list[str]) -> None:
    assert seen["foreign"] == "TypeError: Failed to fetch"
    [line] = log
    assert "--allow-origins null would allow it" in line


def test_with_the_option_the_page_is_answered(bundled_engine: Engine, tmp_path: Path) -> None:
    options: dict[str, Any] = {"api_keys": (API_KEY,), "allow_origins": ("null",)}
    with live_server(bundled_engine, **options) as server:
        seen = run_python("with_chromium", server, tmp_path, str(CHROMIUM))
    assert seen["foreign"] == "401", "it gets an answer that it can read"
