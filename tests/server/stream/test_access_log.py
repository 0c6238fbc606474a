"""The access log over real sockets: one line per request, and nothing of what a client sent."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from server.process.logs import LineFormatter
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

ROOT = Path(__file__).parents[3]
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODY = {"model": "fake", "prompt": "canary-prompt", "max_tokens": 3}
TIMES = ("queue_ms", "prefill_ms", "decode_ms", "total_ms")
Lines = Callable[[int], list[dict[str, str]]]


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine, access_log=True, api_keys=("canary-key",)) as server:
        yield server


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The fields of each line, once there are as many as expected. The log's level is the usual
    one, WARNING, which does not silence it.
    """

    def read(n: int) -> list[dict[str, str]]:
        def said() -> list[str]:
            return [record.getMessage() for record in caplog.records if "access" in record.name]

        wait_until(lambda: len(said()) >= n)
        assert len(said()) == n
        return [dict(field.split("=", 1) for field in line.split(" ")) for line in said()]

    return read


def post(server: LiveServer, path: str = COMPLETIONS, **fields: object) -> int:
    body = {**BODY, **fields}
    return server.post(path, body, authorization="Bearer canary-key").status


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_has_its_tokens_and_times(
    server: LiveServer, lines: Lines, stream: bool
) -> None:
    headers = {"authorization": "Bearer canary-key", "x-request-id": "mine-1"}
    answer = server.post(COMPLETIONS, {**BODY, "stream": stream, "n": 2}, **headers)
    assert answer.status == 200
    (line,) = lines(1)
    assert list(line) == [
        "id", "method", "path", "status", "prompt", "cached", "completion", "end", *TIMES,
    ]  # fmt: skip
    assert [line[name] for name in ("id", "method", "path", "status")] == [
        "mine-1", "POST", COMPLETIONS, "200",
    ]  # fmt: skip
    counts = [line[name] for name in ("prompt", "cached", "completion", "end")]
    assert counts == [str(len("canary-prompt")), "0", "6", "length"]
    times = [float(line[name]) for name in TIMES]
    assert all(time >= 0 for time in times)
    assert sum(times[1:3]) <= times[3] + 0.3


def test_other_requests_have_a_line_too(server: LiveServer, lines: Lines) -> None:
    key = {"authorization": "Bearer canary-key"}
    ids = [
        server.get("/health").headers["x-request-id"],
        server.request("HEAD", "/health").headers["x-request-id"],
        server.get("/v1/models").headers["x-request-id"],
        server.get("/nothing", **key).headers["x-request-id"],
        server.request("BREW", COMPLETIONS, None, key).headers["x-request-id"],
        server.post(COMPLETIONS, b"{", **key).headers["x-request-id"],
        server.get("/v1/models", host="evil.example", **key).headers["x-request-id"],
    ]
    seen = lines(7)
    assert [line["id"] for line in seen] == ids
    assert [(line["method"], line["path"], line["status"]) for line in seen] == [
        ("GET", "/health", "200"),
        ("HEAD", "/health", "200"),
        ("GET", "/v1/models", "401"),
        ("GET", "/nothing", "404"),
        ("BREW", COMPLETIONS, "405"),
        ("POST", COMPLETIONS, "400"),
        ("GET", "/v1/models", "200"),
    ]
    assert all(set(line) == {"id", "method", "path", "status", "total_ms"} for line in seen)


def test_what_is_refused_before_it_is_a_request_has_a_line(
    server: LiveServer, lines: Lines
) -> None:
    for raw, status in (
        (b"GET /canary-path HTTP/9.9\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
    ):
        with server.connect() as sock:
            sock.sendall(raw)
            assert read_answer(sock).status == status
    with server.connect() as sock:  # the head has passed, the body is broken
        head = (
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
            b"authorization: Bearer canary-key\r\ncontent-type: application/json\r\n\r\n"
        )
        sock.sendall(head)
        wait_until(lambda: len(head) in server.n_received)
        sock.sendall(b"zz\r\n")
        assert read_answer(sock).status == 400
    first, second, third = lines(3)
    assert (first["status"], second["status"], third["status"]) == ("400", "414", "400")
    assert first["path"] == second["path"] == "-"
    assert third["path"] == COMPLETIONS


@pytest.mark.parametrize(("stream", "status"), [(True, "200"), (False, "499")])
def test_a_client_that_hangs_up_has_its_line_when_the_engine_is_free(
    fake: FakeEngine, server: LiveServer, lines: Lines, stream: bool, status: str
) -> None:
    fake.model.decode_gate.clear()
    data = str({**BODY, "max_tokens": 50, "stream": stream}).replace("'", '"')
    data = data.replace("True", "true").replace("False", "false")
    with server.connect() as sock:
        sock.sendall(
            f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\n"
            f"authorization: Bearer canary-key\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n{data}".encode()
        )
        wait_until(fake.model.in_decode.is_set)
        if stream:
            fake.model.decode_gate.set()
            assert sock.recv(12) == b"HTTP/1.1 200"
            fake.model.decode_gate.clear()
    wait_until(lambda: server.running is None or server.running.cancelled_at is not None)
    fake.model.decode_gate.set()
    (line,) = lines(1)
    if line["end"] != "length":  # the engine may be faster than the hang-up
        assert (line["status"], line["end"]) == (status, "client_disconnected")
        assert int(line["completion"]) >= 1
    assert line["prompt"] == str(len("canary-prompt"))


def test_one_that_hangs_up_in_the_queue_and_one_that_finds_it_full(
    fake: FakeEngine, lines: Lines
) -> None:
    with live_server(fake.as_engine, access_log=True, max_queue=1) as server:
        fake.model.decode_gate.clear()
        with server.send(COMPLETIONS, BODY) as running:
            wait_until(fake.model.in_decode.is_set)
            with server.send(COMPLETIONS, BODY):
                wait_until(lambda: server.lease.n_waiting == 1)
                assert server.post(COMPLETIONS, BODY).status == 429
                (full,) = lines(1)
            _, left = lines(2)
            fake.model.decode_gate.set()
            assert read_answer(running).status == 200
            *_, served = lines(3)
    assert (full["status"], "end" in full) == ("429", False)
    assert (left["status"], left["end"], left["completion"]) == ("499", "client_disconnected", "0")
    assert float(left["queue_ms"]) > 0
    assert (served["status"], served["end"]) == ("200", "length")


def test_an_error_in_the_engine_is_named(
    fake: FakeEngine, server: LiveServer, lines: Lines
) -> None:
    fake.model.faults[0] = ValueError("canary-error")
    assert post(server) == 500
    (line,) = lines(1)
    assert (line["status"], line["end"]) == ("500", "engine_error")


def test_no_line_can_be_forged_and_nothing_sent_is_shown(
    server: LiveServer, caplog: pytest.LogCaptureFixture, lines: Lines
) -> None:
    for target in (
        "/%0d%0a2026-01-01%20INFO", "/a?key=canary-query", "/a=1", "/\"'\\", "/é", "/" + "x" * 4000,
        "http://localhost/health?canary-query",
    ):  # fmt: skip
        with server.connect() as sock:
            head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\nx-request-id: a b\r\n"
            sock.sendall(f"{head}user-agent: canary-agent\r\n\r\n".encode("latin-1"))
            read_answer(sock)
    post(server, user="canary-user", stop=["canary-stop"])
    seen = lines(8)
    formatter = LineFormatter(with_messages=False)
    text = "\n".join(map(formatter.format, caplog.records))
    assert "canary" not in text
    assert len(text.splitlines()) == 8
    assert all(len(line["path"]) <= 129 for line in seen)
    assert [line["path"] for line in seen[:4]] == [
        "/%0d%0a2026-01-01%20INFO", "/a", "/a?1", "/???",
    ]  # fmt: skip


def test_by_default_there_is_none(fake: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with live_server(fake.as_engine) as server:
        assert server.get("/health").status == 200
        assert server.post(COMPLETIONS, BODY).status == 200
    assert not [record for record in caplog.records if "access" in record.name]


def test_an_idle_connection_keeps_no_prompt(fake: FakeEngine, lines: Lines) -> None:
    with live_server(fake.as_engine, access_log=True) as server, server.connect() as sock:
        server.send_on(sock, COMPLETIONS, BODY)
        assert read_answer(sock).status == 200
        lines(1)
        (connection,) = server.connections
        assert "stream" not in connection.scope["state"]


def test_the_program_writes_it_to_stderr() -> None:
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--access-log"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = next(word for word in process.stdout.readline().split() if word.startswith("http:"))
        body = {"prompt": "Once", "max_tokens": 4, "ignore_eos": True, "stream": True}
        answer = httpx.post(f"{url}{COMPLETIONS}", json=body, timeout=60)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert answer.status_code == 200
    request_id = answer.headers["x-request-id"]
    assert re.search(
        rf" INFO server\.stream\.access_log: id={request_id} method=POST path=/v1/completions "
        r"status=200 prompt=\d+ cached=0 completion=4 end=length queue_ms=[\d.]+ prefill_ms=[\d.]+ "
        r"decode_ms=[\d.]+ total_ms=[\d.]+$",
        log,
        re.MULTILINE,
    ), log
