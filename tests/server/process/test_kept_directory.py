"""Kept streams over the ends of real processes: a shutdown, a kill, and the next start."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60.0
pytestmark = pytest.mark.timeout(240)  # several processes, which start slowly
BODY: dict[str, Any] = {
    "prompt": "Once upon a time", "max_tokens": 400, "seed": 7, "temperature": 0.8, "logprobs": 2,
    "ignore_eos": True, "stream": True, "store": True, "background": True,
}  # fmt: skip


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[tuple["subprocess.Popen[str]", httpx.Client]]:
    """A server with the built-in model, and a client of it."""
    command = [
        sys.executable, "-m", "server", "serve", "--port", "0", "--keep-streams-dir",
        str(directory), *flags,
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found, "the ready line should name the URL"
            with httpx.Client(base_url=f"{found[0]}/v1", timeout=DEADLINE_S) as client:
                yield process, client
        finally:
            process.kill()


def begun(client: httpx.Client, **fields: Any) -> str:
    """The id of a stream in the background that has some of its tokens."""
    with client.stream("POST", "/completions", json={**BODY, **fields}) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
    return str(first["id"])


def shown(client: httpx.Client, id_: str) -> dict[str, Any]:
    stream: dict[str, Any] = client.get(f"/streams/{id_}").raise_for_status().json()
    return stream


def ended(client: httpx.Client, id_: str) -> dict[str, Any]:
    client.get(f"/streams/{id_}/events").raise_for_status()  # to its end
    return shown(client, id_)


def events(client: httpx.Client, id_: str, after: int = 0) -> list[bytes]:
    """From `after` on, without ids and times, and without what controls say. Of a paused stream
    those so far.
    """
    n = shown(client, id_)["events"] - after
    data = b""
    with client.stream("GET", f"/streams/{id_}/events?starting_after={after}") as answer:
        for piece in answer.iter_raw():
            data += piece
            if data.count(b"\n\n") == n:
                break
    data = re.sub(rb'(?m)^id: \d+\n|"(?:id|created)": ?("[^"]*"|\d+)', b"", data)
    return [each for each in data.split(b"\n\n") if b'"control"' not in each]


def numbers(stream: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("token_id", "logprob", "p_raw", "p_sampled", "entropy", "top_logprobs")
    return [tuple(token[name] for name in names) for token in stream["tokens"]]


def control(client: httpx.Client, id_: str, action: str) -> dict[str, Any]:
    answer = client.post(f"/streams/{id_}/control", json={"action": action})
    said: dict[str, Any] = answer.raise_for_status().json()
    return said


def test_pauses_survive_a_shutdown_and_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with serving(directory) as (process, client):
        paused = begun(client)
        n_paused = control(client, paused, "pause")["event"]
        seen = events(client, paused)
        running = begun(client, seed=8)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    with serving(directory) as (process, client):
        first, second = shown(client, paused), shown(client, running)
        assert (first["state"], first["reason"], first["events"]) == ("paused", None, n_paused)
        assert (second["state"], second["reason"]) == ("paused", "the server was shut down")
        assert 0 < second["completion_tokens"] < 400
        assert events(client, paused) == seen
        control(client, paused, "resume")
        process.kill()  # what was last written is the pause
        process.wait(DEADLINE_S)
    with serving(directory) as (process, client):
        assert shown(client, paused)["events"] == n_paused
        for id_, seed in ((running, 8), (paused, 7)):
            control(client, id_, "resume")
            own = ended(client, id_)
            twin_id = begun(client, seed=seed)
            twin = ended(client, twin_id)
            assert own["text"] == twin["text"]
            assert numbers(own) == numbers(twin)
            assert events(client, id_) == events(client, twin_id)
        assert events(client, paused)[: len(seen) - 1] == seen[:-1], "b'' is behind the last"
        tail = events(client, paused, n_paused)
        assert tail == events(client, paused)[-len(tail) :]
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_a_reader_is_told_and_a_directory_in_use_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with serving(directory, "--drain-seconds", "0.2") as (process, client):
        command = [
            sys.executable, "-m", "server", "serve", "--port", "0", "--keep-streams-dir",
            str(directory),
        ]  # fmt: skip
        other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert other.returncode == 2
        assert "--keep-streams-dir" in other.stderr
        assert "another server" in other.stderr
        with client.stream("POST", "/completions", json=BODY) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        if "error" in rest[-1]:  # else it came to its end in time
            assert rest[-1]["error"]["code"] == "unavailable"
            assert rest[-2]["control"]["reason"] == "the server was shut down"
        assert process.wait(DEADLINE_S) == 0
