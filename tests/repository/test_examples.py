"""Every file of examples/ runs against a live server and prints what it promises."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from tests.support.client_process import NODE
from tests.support.client_process import PYTHON as CLIENTS_PYTHON
from tests.support.live_server import LiveServer, live_server

EXAMPLES = Path(__file__).parents[2] / "examples"
WRITTEN_URL = "http://127.0.0.1:8000"
STORY = ", there was a little girl named Lily. She loved to play outside in the sun."
FROG = "Once upon a time there was a little frog called"


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def output_of(
    name: str, server: LiveServer, place: Path, *program: str, typed: str | None = None
) -> str:
    """What the example prints; a copy of it in `place` has the address of `server`."""
    text = (EXAMPLES / name).read_text()
    assert WRITTEN_URL in text, "the examples use the default port"
    (place / name).write_text(text.replace(WRITTEN_URL, server.url))
    result = subprocess.run(
        [*program, name],
        cwd=place,
        input=typed,
        env={**os.environ, "HOME": str(place), "LANGSMITH_TRACING": "false"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def python(server: LiveServer, tmp_path: Path) -> "Run":
    return Run(server, tmp_path, (sys.executable, "-I"))


class Run:
    """Runs examples with one program."""

    def __init__(self, server: LiveServer, place: Path, program: tuple[str, ...]) -> None:
        self._server, self._place, self._program = server, place, program

    def __call__(self, name: str, typed: str | None = None) -> str:
        return output_of(name, self._server, self._place, *self._program, typed=typed)


def test_chat(python: Run) -> None:
    assert FROG in python("chat.py")


def test_token_probabilities(python: Run) -> None:
    lines = python("token_probabilities.py").splitlines()
    assert len(lines) == 12
    for line in lines:
        assert 0 <= float(line.split("model ")[1].split()[0]) <= 1
        assert 0 < float(line.split("drawn ")[1].split()[0]) <= 1
        assert line.split("from ")[1].split()[0] in ("model", "ngram")


def test_multiple_choice(python: Run) -> None:
    lines = python("multiple_choice.py").splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("drank some water")
    values = [float(line.split()[0]) for line in lines]
    assert values == sorted(values, reverse=True)


def test_yes_or_no(python: Run) -> None:
    warm, cold = (float(line.split()[0]) for line in python("yes_or_no.py").splitlines())
    assert 0 < warm < 1
    assert 0 < cold < 1


def test_loom(python: Run) -> None:
    """The text, then the token at place 5 replaced by the second likeliest one."""
    first, *ways, second, _ = python("loom.py", typed="5\n1\n\n").splitlines()
    assert first.startswith("Once upon a time,[0] there[1] was[2] a[3] little[4] girl[5]")
    assert second.count("little[4] boy[5] named[6]") == 1
    assert [way.split("'")[1].split()[0] for way in ways[:2]] == ["girl", "boy"], ways
    shares = [float(way.split("%")[0].split()[-1]) for way in ways]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)


def test_resume(python: Run) -> None:
    before, after, verdict = python("resume.py").splitlines()
    assert before.startswith("20 events, then the connection is cut: ', there was a little girl")
    assert int(after.split()[0]) > 1, "the stream went on"
    assert verdict == "nothing is lost or doubled: True"


def test_best_of_branches(python: Run) -> None:
    texts = python("best_of_branches.py").split(" per token  ")
    means = [float(text.rsplit("\n", 1)[-1]) for text in texts[:-1]]
    assert means == sorted(means, reverse=True)
    assert len(set(texts[1:])) == 4
    assert all(text.startswith(f"Once upon a time{STORY[:40]}") for text in texts[1:])


def test_structured_output(python: Run) -> None:
    kind, legs = python("structured_output.py").split()
    assert kind in ("kind='bird'", "kind='fish'", "kind='frog'")
    assert 0 <= int(legs.removeprefix("legs=")) <= 8


def test_tools(python: Run) -> None:
    call, reply = python("tools.py").split("\n", 1)
    assert json.loads(call.removeprefix("call: weather "))["city"] in ("Paris", "Rome")
    assert reply.removeprefix("reply: ").strip()


def test_a_stream_without_packages(python: Run) -> None:
    assert STORY in python("stream.py")


def test_curl(server: LiveServer, tmp_path: Path) -> None:
    stream, _, reply = output_of("completion.sh", server, tmp_path, "sh").partition("[DONE]")
    assert stream.count("top_logprobs") == 8
    assert json.loads(reply)["choices"][0]["message"]["content"].startswith("Hi there!")


@pytest.mark.clients
def test_a_stream_in_javascript(server: LiveServer, tmp_path: Path) -> None:
    assert STORY in output_of("stream.mjs", server, tmp_path, "node")


@pytest.mark.clients
def test_the_npm_client(server: LiveServer, tmp_path: Path) -> None:
    packages = NODE / "node_modules"
    assert packages.exists(), "the npm clients are not installed: `make test` does it"
    (tmp_path / "node_modules").symlink_to(packages)
    assert FROG in output_of("openai_client.mjs", server, tmp_path, "node")


@pytest.mark.clients
def test_langchain(server: LiveServer, tmp_path: Path) -> None:
    assert CLIENTS_PYTHON.exists(), "the clients are not installed: `make test` does it"
    *story, animal = output_of(
        "langchain_chat.py", server, tmp_path, str(CLIENTS_PYTHON), "-I"
    ).splitlines()
    assert FROG in "\n".join(story)
    assert animal in ("kind='bird'", "kind='fish'", "kind='frog'")


def test_the_list_names_every_example_and_each_is_tested() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    tests = Path(__file__).read_text()
    for path in EXAMPLES.iterdir():
        if path.suffix in (".py", ".mjs", ".sh"):
            assert f"[{path.name}]({path.name})" in listed
            assert f'"{path.name}"' in tests
