"""What the process does when the machine fails it: it ends and says why, or goes on serving."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.__main__ import main
from server.app import create_app
from server.commands import serve
from server.settings import Settings
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import wait_until

ROOT = Path(__file__).parents[3]
DEADLINE_S = 60.0
pytestmark = pytest.mark.timeout(240)  # many processes, which start slowly
# `soliton serve` over the fake engine, after some preparation of both.
PROGRAM = """
import os, resource, sys
from server.app import create_app
from server.app import create_app
from server.commands import serve
from server.commands.serve_options import settings_from
from server.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.fault_script import Hang, Sleep

fake = FakeEngine(max_seq_len=4096)
serve.load_app = lambda settings: (create_app(settings, fake.as_engine), "fake")
{}
sys.exit(serve.main(settings_from(sys.argv[1:])))
"""
BODY = {"model": "fake", "prompt": "x", "max_tokens": 8}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def serving(
    preparation: str = "", *options: str, **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process, and its URL, once it is ready."""
    port = free_port()
    command = [sys.executable, "-c", PROGRAM.format(preparation), "--port", str(port), *options]
    with subprocess.Popen(command, cwd=ROOT, **streams) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: process.poll() is not None or is_ready(url), seconds=DEADLINE_S)
            assert process.poll() is None
            yield process, url
        finally:
            process.kill()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready").is_success
    except httpx.HTTPError:
        return False


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["text"]
    return text


def test_a_hang_ends_the_process_for_a_supervisor_after_all_clients_got_an_error() -> None:
    with (
        serving("fake.faults[3] = Hang()", "--hang-seconds", "1.5", stderr=subprocess.PIPE) as (
            process,
            url,
        ),
    ):
        answer = httpx.post(
            f"{url}/v1/completions", json={**BODY, "stream": True}, timeout=DEADLINE_S
        )
        *before, last = parse_event_stream(answer.content).chunks
        assert "".join(chunk["choices"][0]["text"] for chunk in before) == fake_reply("x", 3)
        assert last["error"]["code"] == "unavailable"
        assert process.wait(DEADLINE_S) == 70
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert "the engine hangs" in log
    assert "thread engine:" in log


def test_native_code_that_keeps_the_interpreter_is_ended_by_a_signal() -> None:
    backtracking = """
import re
from server.process import last_resort
last_resort._CORE_SECONDS = 0.1
fake.tokenizer.encode = lambda text, **_: re.match("(a+)+b", "a" * 60)
"""
    with serving(backtracking, "--hang-seconds", "1.5", stderr=subprocess.PIPE) as (process, url):
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{url}/v1/completions", json=BODY, timeout=DEADLINE_S)
        assert process.wait(DEADLINE_S) == -signal.SIGPROF
        assert process.stderr is not None
        log = process.stderr.read().decode()
    assert "most recent call first" in log
    assert "in encode" in log or "re/__init__.py" in log


def test_a_full_disk_below_the_log_ends_nothing() -> None:
    with (
        open("/dev/full", "wb") as full,
        serving("fake.faults[2] = RuntimeError('logged')", stdout=full, stderr=full) as (
            process,
            url,
        ),
    ):
        for status in (500, 200):
            answer = httpx.post(f"{url}/v1/completions", json=BODY, timeout=DEADLINE_S)
            assert answer.status_code == status
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_descriptors_it_waits_and_serves_again() -> None:
    limited = "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
    with serving(limited, stderr=subprocess.DEVNULL) as (process, url):
        port = int(url.rpartition(":")[2])
        with ExitStack() as connections:
            for _ in range(120):  # more than it can accept; the rest waits in the backlog
                connections.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            time.sleep(1.0)  # for the connections that it can accept
            before = cpu_seconds(process)
            time.sleep(3.0)
            used = cpu_seconds(process) - before
            assert used < 1.0, "a busy loop takes three seconds, or what the machine has left"
        wait_until(lambda: is_ready(url), seconds=DEADLINE_S)
        answer = httpx.post(f"{url}/v1/completions", json=BODY, timeout=DEADLINE_S)
        assert text_of(answer) == fake_reply("x", 8)


def one_error_line(text: str) -> bool:
    return text.startswith("soliton: error: ") and text.count("\n") == 1 and text.endswith("\n")


@pytest.mark.parametrize("mb", [16, 44])
def test_a_model_without_memory_is_one_line(mb: int) -> None:
    program = f"""
import resource, sys
from pathlib import Path
import server.app, server.commands.local, server.commands.serve
from server.__main__ import main
used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + {mb} * 2**20,) * 2)
sys.exit(main(["complete", "Hello", "--max-tokens", "1", "--model", sys.argv[1]]))
"""
    model = ROOT / "engine" / "default_model"
    done = subprocess.run(
        [sys.executable, "-c", program, str(model)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    # tqdm warns too when it gets no thread.
    assert one_error_line(done.stderr.splitlines(keepends=True)[-1])
    assert "memory" in done.stderr


@pytest.mark.parametrize("warm", [False, True], ids=["a thread", "an import"])
def test_no_memory_for(warm: bool) -> None:
    """The system has no memory for the stack of a thread, or to map a library."""
    long = {"model": "fake", "prompt": "long " * 4000}
    bounded = {**BODY, "guided_regex": "[ab]{3}"}
    with serving() as (process, url), httpx.Client(base_url=url, timeout=DEADLINE_S) as client:
        if warm:  # there is a thread, and it is free
            assert client.post("/tokenize", json=long).status_code == 200
        used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * 4096
        # Enough to read a request, but for neither of the two.
        before = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + 2**21, before[1]))
        if warm:
            answer = client.post("/v1/completions", json=bounded)
        else:
            answer = client.post("/tokenize", json=long)
        assert answer.status_code == 503, answer.text
        assert answer.json()["error"]["code"] == "out_of_memory"
        assert "retry-after" in answer.headers
        resource.prlimit(process.pid, resource.RLIMIT_AS, before)
        assert client.post("/tokenize", json=long).status_code == 200
        assert client.post("/v1/completions", json=bounded).status_code == 200


def test_native_code_without_memory_raises() -> None:
    program = """
import resource
from pathlib import Path
from engine.native.cpu import kernels
index, token_ids = kernels.NgramIndex(2**20), [7] * 2**23
used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 2**22,) * 2)
try:
    index.begin(token_ids)
except MemoryError:
    print("told")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that cannot be done."""
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == "", "it was never ready"
    assert one_error_line(printed.err)
    return printed.err


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("no-such-host.invalid", "no-such-host.invalid"),
        ("203.0.113.7", "Cannot assign requested address"),
        ("127.0.0.1.5", "127.0.0.1.5"),
    ],
)
def test_an_address_that_is_not_of_this_machine_is_one_line(
    host: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["serve", "--host", host, "--port", "0", "--insecure-no-auth"]
    assert reason in run(argv, capsys)


def test_a_port_that_is_not_allowed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert "Permission denied" in run(["serve", "--port", "80"], capsys)


def test_a_second_instance_that_started_at_the_same_moment_is_one_line(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have bound the port; the first to listen gets it."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        def load_slowly(settings: Settings) -> Any:
            other.listen()
            return create_app(settings, fake.as_engine), "fake"

        monkeypatch.setattr(serve, "load_app", load_slowly)
        monkeypatch.setattr(serve, "guard_interpreter", lambda seconds: lambda: None)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        port = other.getsockname()[1]
        assert "in use" in run(["serve", "--port", str(port)], capsys)
