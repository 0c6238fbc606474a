"""--idle-unload over real sockets: what leaves memory, what wakes it, and what survives."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import DEFAULT_MODEL, Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.tiny_models import save_model

ROOT = Path(__file__).parents[3]
BODY: dict[str, Any] = {"prompt": "Once upon a time, " * 8, "max_tokens": 8, "seed": 3}
IDLE = 0.3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("idle") / "model"
    shutil.copytree(DEFAULT_MODEL, path)
    return path


@contextmanager
def served(model: Path, **options: Any) -> Iterator[LiveServer]:
    engine = Engine.load(model, device="cpu", prefix_bytes=2**24)
    with live_server(engine, idle_unload=IDLE, **options) as server:
        yield server


def is_asleep(server: LiveServer) -> bool:
    answer = server.get("/health/ready")
    assert answer.status == 200, "a server that sleeps is ready for work"
    asleep: bool = answer.json == {"status": "ok", "state": "asleep"}
    assert asleep or answer.json == {"status": "ok"}
    return asleep


def metric(server: LiveServer, name: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    [value] = [line.split()[-1] for line in lines if line.startswith(f"soliton_{name}{{")]
    return float(value)


def cached(answer: Any) -> int:
    n: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return n


def test_it_sleeps_until_it_is_asked_and_answers_the_same(model: Path) -> None:
    with served(model) as server:
        first = server.post("/v1/completions", BODY).json
        assert cached(first) == 0
        wait_until(lambda: is_asleep(server))
        n_loads = metric(server, "model_loads_total")
        for path in (
            "/health",
            "/health/live",
            "/metrics",
            "/v1/models",
            "/props",
            "/slots",
            "/api/ps",
        ):
            assert server.get(path).status == 200
        counted = server.post("/tokenize", {"content": "Once"})
        assert counted.json["tokens"], "what needs no weights does not wait for them"
        assert is_asleep(server), "none of these wakes it"
        assert server.get("/props").json["is_sleeping"]
        assert (metric(server, "model_loaded"), metric(server, "model_loads_total")) == (0, n_loads)
        again = server.post("/v1/completions", BODY).json
        assert again["choices"] == first["choices"]
        assert cached(again) > 20, "its prompt was kept"
        assert metric(server, "model_loads_total") == n_loads + 1
        assert metric(server, "model_load_seconds") > 0
        wait_until(lambda: is_asleep(server))


def test_it_stays_awake_without_the_option(model: Path) -> None:
    engine = Engine.load(model, device="cpu")
    with live_server(engine) as server:
        threading.Event().wait(2 * IDLE)
        assert not is_asleep(server)


def test_a_request_is_not_idle_however_long_it_takes(fake: FakeEngine) -> None:
    fake.model.decode_gate.clear()
    with live_server(fake.as_engine, idle_unload=IDLE) as server:
        with closing(server.send("/v1/completions", BODY)):
            wait_until(lambda: fake.model.held_in_decode)
            threading.Event().wait(2 * IDLE)
            assert not is_asleep(server)
            fake.model.decode_gate.set()
            wait_until(lambda: not server.lease.busy)
            assert not is_asleep(server), "its time begins at the end of the request"
        wait_until(lambda: is_asleep(server))


def test_a_request_that_comes_while_it_falls_asleep_waits(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling, may_sleep = threading.Event(), threading.Event()
    sleep = fake.sleep

    def slowly() -> None:
        falling.set()
        assert may_sleep.wait(20)
        sleep()

    monkeypatch.setattr(fake, "sleep", slowly)
    with live_server(fake.as_engine, idle_unload=IDLE) as server:
        assert falling.wait(20)
        answers: list[Any] = []
        client = threading.Thread(
            target=lambda: answers.append(server.post("/v1/completions", BODY))
        )
        client.start()
        wait_until(lambda: server.lease.n_waiting == 1)
        assert server.get("/health").status == 200, "the event loop does not wait"
        may_sleep.set()
        client.join(20)
        assert [answer.status for answer in answers] == [200]


def test_a_wake_that_fails_is_an_error_of_that_request_alone(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(model, path)
    [weights] = path.glob("*.safetensors")
    with served(path) as server:
        first = server.post("/v1/completions", BODY).json
        wait_until(lambda: is_asleep(server))
        weights.rename(tmp_path / "away")
        for stream in (False, True):
            refused = server.post("/v1/completions", {**BODY, "stream": stream})
            assert (refused.status, refused.error["code"]) == (503, "model_not_loaded")
            assert "could not be loaded" in refused.error["message"]
            assert str(tmp_path) not in refused.error["message"], "no path leaves the machine"
            assert "retry-after" in refused.headers
        assert is_asleep(server)
        assert metric(server, "model_loads_failed_total") == 2
        (tmp_path / "away").rename(weights)
        assert server.post("/v1/completions", BODY).json["choices"] == first["choices"]


def test_a_paused_stream_survives_sleep_and_a_wake_that_fails(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(model, path)
    [weights] = path.glob("*.safetensors")
    body = {**BODY, "max_tokens": 300, "ignore_eos": True, "store": True}
    with served(path) as server:
        whole = server.post("/v1/completions", body).json["choices"][0]["text"]
        with server.send("/v1/completions", {**body, "background": True, "stream": True}) as sock:
            sock.recv(1)
        steer = f"/v1/streams/{server.get('/v1/streams?limit=1').json['data'][0]['id']}"
        assert server.post(f"{steer}/control", {"action": "pause"}).json["state"] == "paused"
        wait_until(lambda: is_asleep(server))
        weights.rename(tmp_path / "away")
        refused = server.post(f"{steer}/control", {"action": "resume"})
        assert (refused.status, refused.error["code"]) == (503, "model_not_loaded")
        assert server.get(steer).json["state"] == "paused", "the failure ended only the attempt"
        (tmp_path / "away").rename(weights)
        assert server.post(f"{steer}/control", {"action": "resume"}).status == 200
        wait_until(lambda: server.get(steer).json["state"] == "ended")
        assert server.get(steer).json["text"] == whole
        wait_until(lambda: is_asleep(server))
        assert server.post(f"{steer}/replay", {}).json["identical"], "a kept one wakes it too"


def test_it_stops_while_asleep_and_saves_its_prompts(model: Path, tmp_path: Path) -> None:
    body = {**BODY, "prompt": "Once upon a time, " * 40}
    for n_cached in (0, 20):
        engine = Engine.load(model, device="cpu", prefix_bytes=2**24, prefix_directory=tmp_path)
        with live_server(engine, idle_unload=IDLE) as server:
            assert cached(server.post("/v1/completions", body).json) >= n_cached
            wait_until(lambda server=server: is_asleep(server))  # type: ignore[misc]


def test_memory_falls_and_the_process_ends(tmp_path: Path) -> None:
    """In a process of its own, whose memory nobody else takes part in."""
    save_model(tmp_path / "large", vocab_size=320, hidden_size=1024, intermediate_size=4096)
    command = [
        sys.executable, "-m", "server", "serve", str(tmp_path / "large"), "--port", "0",
        "--idle-unload", "2", "--panel-cache", "off", "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(line.split("http://127.0.0.1:")[1].split()[0])
            first = ask(port, "POST", "/v1/completions", BODY)
            size = ask(port, "GET", "/v1/models")["data"][0]["meta"]["size"]
            awake = resident(process.pid)
            assert size > 100e6
            wait_until(lambda: "state" in ask(port, "GET", "/health"))
            assert awake - resident(process.pid) > 0.95 * size
            assert ask(port, "POST", "/v1/completions", BODY)["choices"] == first["choices"]
            assert abs(resident(process.pid) - awake) < 0.1 * size, "no more than before"
            wait_until(lambda: "state" in ask(port, "GET", "/health"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json"})
        return json.loads(connection.getresponse().read())


def resident(pid: int) -> int:
    """Bytes of memory that the process has now."""
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return n_pages * os.sysconf("SC_PAGE_SIZE")
