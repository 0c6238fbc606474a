"""How the server ends, with real processes and real signals, over a fake engine."""

import json
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_stream import ParsedStream, parse_event_stream
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import Answer, LiveServer, live_server, read_answer, wait_until

ROOT = Path(__file__).parents[3]
PATH = "/v1/completions"
DEADLINE_S = 60.0  # against hanging
pytestmark = pytest.mark.timeout(240)  # many processes, which start slowly

SERVE = """
import sys, time
from server.app import create_app
from server.commands import serve
from server.commands.serve_options import settings_from
from server.process.drain import leave
from tests.support.fake_engine import FakeEngine

def load(settings):
    fake = FakeEngine(max_seq_len=8192)
    fake.model.token_time = TOKEN_S
    return create_app(settings, fake.as_engine), "fake"

serve.load_app = load
codes = [serve.main(settings_from(sys.argv[1:])) for _ in range(TIMES)]
leave(max(codes))
"""


class Serving:
    """A process that serves, or is about to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.port = 0
        self.sockets = ExitStack()

    def ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"the ready line should name the URL: {line!r}"
        self.port = int(found[1])

    def connect(self, *, starved: bool = False) -> socket.socket:
        sock = self.sockets.enter_context(socket.socket())
        if starved:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def send(self, *, path: str = PATH, starved: bool = False, **fields: Any) -> socket.socket:
        sock = self.connect(starved=starved)
        data = json.dumps({"model": "fake", "prompt": "x", **fields}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        sock.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        return sock

    def wait_for_queue(self, n: int) -> None:
        wait_until(lambda: f"soliton_queue_length {n}.0" in self.get("/metrics").body.decode())

    def get(self, path: str) -> Answer:
        with self.connect() as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
            return read_answer(sock)

    def kill(self, *signals: int) -> None:
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.05)  # two of one kind that come together count as one

    def code(self) -> int:
        return self.process.wait(DEADLINE_S)


@contextmanager
def process_of(script: str, *flags: str, **options: Any) -> Iterator[Serving]:
    command = [sys.executable, "-c", script, "--port", "0", "--log-level", "error", *flags]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options
    ) as process:
        server = Serving(process)
        try:
            with server.sockets:
                yield server
        finally:
            process.kill()


@contextmanager
def serving(
    *flags: str, token_s: float = 0.01, times: int = 1, **options: Any
) -> Iterator[Serving]:
    script = SERVE.replace("TOKEN_S", str(token_s)).replace("TIMES", str(times))
    with process_of(script, *flags, **options) as server:
        server.ready()
        yield server


def begun(sock: socket.socket) -> bytes:
    """The beginning of a stream."""
    received = b""
    while b"data: " not in received:
        received += sock.recv(4096)
    return received


def stream_behind(start: bytes, sock: socket.socket) -> ParsedStream:
    """The whole stream that began with `start`: to its last chunk, or to a cut."""
    received = start
    while not received.endswith(b"0\r\n\r\n"):
        piece = sock.recv(1 << 16)
        assert piece, "a stream must not end in silence"
        received += piece
    body = received.partition(b"\r\n\r\n")[2]
    return parse_event_stream(re.sub(rb"(?:\r\n|^)[0-9a-f]+\r\n", b"", body))


def test_received_requests_are_answered_and_no_others_admitted() -> None:
    with serving("--drain-seconds", "30") as server, server.connect() as idle:
        running = server.send(prompt="first", max_tokens=60, stream=True)
        start = begun(running)
        queued = server.send(prompt="second", max_tokens=5)
        server.wait_for_queue(1)
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert read_answer(idle).status == 200
        server.kill(signal.SIGTERM)
        assert idle.recv(1) == b"", "an idle connection is closed at once"
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        assert read_answer(queued).json["choices"][0]["text"] == fake_reply("second", 5)
        streamed = stream_behind(start, running)
        assert streamed.data[-1] == "[DONE]"
        text = "".join(chunk["choices"][0]["text"] for chunk in streamed.chunks)
        assert text == fake_reply("first", 60)
        assert server.code() == 0


def test_scores_that_wait_are_answered_too() -> None:
    with serving("--drain-seconds", "30") as server:
        running = server.send(prompt="first", max_tokens=60, stream=True)
        start = begun(running)
        whole = server.send(path="/v1/score", continuations=["ab", "cd"])
        streamed = server.send(path="/v1/score", continuations=["ab", "cd"], stream=True)
        server.wait_for_queue(2)
        server.kill(signal.SIGTERM)
        scores = read_answer(whole).json["scores"]
        assert [score["text"] for score in scores] == ["ab", "cd"]
        parsed = stream_behind(b"", streamed)
        assert [chunk["scores"] for chunk in parsed.chunks[:2]] == [[score] for score in scores]
        assert parsed.data[-1] == "[DONE]"
        assert stream_behind(start, running).data[-1] == "[DONE]"
        assert server.code() == 0


def test_a_request_that_does_not_fit_gets_an_error() -> None:
    with serving("--drain-seconds", "0.3") as server:
        server.send(max_tokens=100, logprobs=20, stream=True, starved=True)
        running = server.send(max_tokens=8000, stream=True)
        start = begun(running)
        queued = server.send(max_tokens=5)
        scored = server.send(path="/v1/score", continuations=["ab"])
        half_sent = server.connect()
        half_sent.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 90\r\n"
            b"content-type: application/json\r\n\r\n{"
        )
        server.wait_for_queue(2)
        server.kill(signal.SIGTERM)
        assert read_answer(queued).status == read_answer(scored).status == 503
        last = stream_behind(start, running).chunks[-1]
        assert last["error"]["code"] == "unavailable"
        assert read_answer(half_sent).status == 503
        assert server.code() == 0, "also with a client that reads nothing"


def test_an_engine_that_does_not_leave_its_step_holds_nobody_up() -> None:
    with serving("--drain-seconds", "0.1", token_s=50) as server:
        running = server.send(max_tokens=5)
        wait_until(lambda: "soliton_engine_busy 1.0" in server.get("/metrics").body.decode())
        server.kill(signal.SIGTERM)
        assert read_answer(running).status == 503
        assert server.code() == 0


def test_a_second_signal_ends_at_once_with_a_code_of_its_own() -> None:
    with serving("--drain-seconds", "1000") as server:
        running = server.send(max_tokens=8000, stream=True)
        start = begun(running)
        server.kill(signal.SIGTERM, signal.SIGHUP)
        time.sleep(0.6)  # any sooner it would be the same request
        server.kill(signal.SIGINT)
        last = stream_behind(start, running).chunks[-1]
        assert last["error"]["code"] == "unavailable"
        assert server.code() == 128 + signal.SIGINT, "SIGHUP does not count as a second signal"


def test_signals_of_one_moment_are_one() -> None:
    """A process group gets one, and a wrapper within it passes its own on."""
    with serving("--drain-seconds", "30") as server:
        running = server.send(prompt="first", max_tokens=120, stream=True)
        start = begun(running)
        server.kill(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)
        streamed = stream_behind(start, running)
        assert streamed.data[-1] == "[DONE]"
        assert server.code() == 0


def test_a_grammar_that_is_tried_holds_nobody_up() -> None:
    with serving("--drain-seconds", "1000") as server:
        tried = [server.send(guided_regex="a?" * 20_000 + f"c{i}") for i in range(3)]
        wait_until(lambda: children_of(server.process.pid))
        running = server.send(prompt="first", max_tokens=60, stream=True)
        start = begun(running)
        server.kill(signal.SIGTERM)
        for sock in tried:
            answer = read_answer(sock)
            assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert stream_behind(start, running).data[-1] == "[DONE]"
        assert server.code() == 0


def children_of(pid: int) -> list[str]:
    return [
        child
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]


def test_a_hang_up_of_the_terminal_drains_and_nohup_keeps_the_server() -> None:
    def taken() -> None:  # whatever the tests themselves were started with
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def ignored() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    port = str(port_that_no_client_gets())
    with serving("--port", port, preexec_fn=ignored) as kept, serving(preexec_fn=taken) as server:
        for one in (kept, server):
            one.kill(signal.SIGHUP)
        assert server.code() == 0
        assert kept.get("/health").status == 200
        kept.kill(signal.SIGKILL)
        assert kept.code() == -signal.SIGKILL
        with socket.socket() as sock:  # no part of it holds the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", kept.port))


def port_that_no_client_gets() -> int:
    """A free port outside the range from which the kernel gives ports to connecting sockets, so
    that no other program takes it between the end of a server and the next bind.
    """
    first, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for port in random.sample(range(1024, int(first)), 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port below {first}")


@pytest.mark.parametrize("load", ["while_it_waits()", "in_a_finalizer()"])
def test_a_signal_while_the_model_loads_ends_the_process_with_0(load: str) -> None:
    script = f"""
import os, signal, sys, threading, time
from server.commands import serve
from server.commands.serve_options import settings_from

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

def while_it_waits():
    threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGTERM]).start()
    time.sleep(1000)

def in_a_finalizer():
    Dropped()  # Python drops what is raised in there
    return None, "fake"

def load(settings):
    return {load}

serve.load_app = load
sys.exit(serve.main(settings_from(sys.argv[1:])))
"""
    with process_of(script, stderr=subprocess.DEVNULL) as server:
        assert server.code() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "", "it was never ready"


def test_a_server_that_ended_leaves_nothing_to_the_next_one_in_its_process() -> None:
    with serving(times=2) as server:
        server.kill(signal.SIGTERM)
        server.ready()
        running = server.send(prompt="first", max_tokens=30, stream=True)
        start = begun(running)
        server.kill(signal.SIGTERM)
        assert stream_behind(start, running).data[-1] == "[DONE]"
        assert server.code() == 0


def test_two_apps_in_one_process_end_apart() -> None:
    fakes = FakeEngine(max_seq_len=512), FakeEngine(max_seq_len=512)
    with live_server(fakes[0].as_engine) as other, live_server(fakes[1].as_engine) as server:
        for fake in fakes:
            fake.model.decode_gate.clear()
        with sending(other) as sock:
            with sending(server) as stopped:
                server.stop()
                fakes[1].model.decode_gate.set()
                assert read_answer(stopped).body.endswith(b"data: [DONE]\n\n")
            assert other.get("/health").status == 200
            fakes[0].model.decode_gate.set()
            assert read_answer(sock).body.endswith(b"data: [DONE]\n\n")


@contextmanager
def sending(server: LiveServer) -> Iterator[socket.socket]:
    body = {"model": "fake", "prompt": "x", "max_tokens": 20, "stream": True}
    with server.send(PATH, body) as sock:
        wait_until(lambda: server.lease.busy)
        yield sock
