"""SillyTavern, unchanged, in Chromium: it connects, writes, shows the probabilities that the server
sent, and goes on from another token.

Only `make test-sillytavern` runs this, because it installs 426 MB.
"""

import math
import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import run_python
from tests.support.live_server import live_server, wait_until

CHROMIUM = shutil.which("chromium")
PROGRAM = Path(__file__).parents[2] / "sillytavern" / "node_modules" / "sillytavern"
TYPES = ["tabby", "llamacpp", "vllm"]

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        "SILLYTAVERN" not in os.environ,
        reason="needs 426 MB of SillyTavern: `make test-sillytavern` installs and runs it",
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"),
]


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its server, with data of its own."""
    home = tmp_path_factory.mktemp("sillytavern")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        "node", "server.js", "--configPath", str(home / "config.yaml"),
        "--dataRoot", str(home / "data"), "--port", str(port), "--browserLaunchEnabled", "false",
    ]  # fmt: skip
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(command, cwd=PROGRAM, stdout=log, stderr=log) as process,
    ):
        url = f"http://127.0.0.1:{port}/"
        try:
            wait_until(lambda: process.poll() is not None or _answers(url), seconds=300)
            assert process.poll() is None, (home / "log").read_text()
            yield url
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def seen(bundled_engine: Engine, page_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("browser")
    with live_server(bundled_engine) as server:
        return run_python("with_sillytavern", server, home, str(CHROMIUM), page_url, *TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_sillytavern_connects_and_gets_an_answer(seen: Any, kind: str) -> None:
    assert seen[kind]["model"] == "soliton-default"
    answer = seen[kind]["answer"]
    assert _letters(answer["text"]) == _letters("".join(_texts(answer)))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("part", ["answer", "branch"])
def test_sillytavern_s_panel_shows_every_token(seen: Any, kind: str, part: str) -> None:
    assert len(seen[kind][part]["tokens"]) > 5
    assert seen[kind][part]["tokens"] == [_visible(text) for text in _texts(seen[kind][part])]


@pytest.mark.parametrize("kind", TYPES)
def test_sillytavern_s_panel_lists_what_could_have_come(seen: Any, kind: str) -> None:
    events = _with_logprobs(seen[kind]["answer"])
    for token, rows in seen[kind]["panels"].items():
        sent = sorted(_alternatives(events[int(token)]), key=lambda pair: -pair[1])
        *shown, (last_name, others) = [(name, _fraction(percent)) for name, percent in rows]
        assert len(sent) >= 5
        assert [name for name, _ in shown] == [_visible(text) for text, _ in sent]
        probabilities = [math.exp(logprob) for _, logprob in sent]
        assert [value for _, value in shown] == pytest.approx(probabilities, abs=6e-5)
        assert last_name == "<others>"
        if kind != "llamacpp":  # for this type the page does not sum what it lists
            assert others == pytest.approx(1 - sum(probabilities), abs=6e-5)


@pytest.mark.parametrize("kind", TYPES)
def test_sillytavern_goes_on_from_another_token(seen: Any, kind: str) -> None:
    branch = seen[kind]["branch"]
    token = max(int(token) for token in seen[kind]["panels"])
    texts = _texts(seen[kind]["answer"])
    others = {text for text, _ in _alternatives(_with_logprobs(seen[kind]["answer"])[token])}
    beginnings = {_words("".join([*texts[:token], other])) for other in others - {texts[token]}}
    assert _words("".join(branch["prefix"])) in beginnings
    assert _words(branch["prompt"]).endswith(_words("".join(branch["prefix"])))
    assert _letters(branch["text"]) == _letters("".join([*branch["prefix"], *_texts(branch)]))


def _with_logprobs(part: Any) -> list[Any]:
    """The events of an answer that bring a token."""
    return [
        event
        for event in part["events"]
        if event.get("completion_probabilities") or event.get("choices", [{}])[0].get("logprobs")
    ]


def _texts(part: Any) -> list[str]:
    events = _with_logprobs(part)
    return [
        event["content"] if "content" in event else event["choices"][0]["text"] for event in events
    ]


def _alternatives(event: Any) -> list[tuple[str, float]]:
    """Texts and logprobs that came with a token."""
    if "content" in event:
        listed = event["completion_probabilities"][0]["top_logprobs"]
        return [(other["token"], other["logprob"]) for other in listed]
    return list(event["choices"][0]["logprobs"]["top_logprobs"][0].items())


def _visible(text: str) -> str:
    """As the page shows it."""
    return text.replace(" ", "·").replace("\n", "↵")


def _fraction(percent: str) -> float:
    return float(percent.removesuffix("%")) / 100


def _words(text: str) -> str:
    """Without the spaces, of which the page leaves some out."""
    return "".join(text.split())


def _letters(text: str) -> str:
    """Without the marks that the page reads as Markdown."""
    return "".join(filter(str.isalnum, text))
