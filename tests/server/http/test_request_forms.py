"""Requests in the forms that old clients, proxies and load balancers write them in."""

import gzip
import json
import socket
from collections.abc import Iterator

import pytest

from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import Answer, LiveServer, read_answer, wait_until
from tests.support.raw_http import ask, assert_unharmed, received, serving

PATH = "/v1/completions"
BODY = {"model": "fake", "prompt": "x", "max_tokens": 2}


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FakeEngine, LiveServer]]:
    with serving() as both:
        yield both


@pytest.fixture
def fake(shared: tuple[FakeEngine, LiveServer]) -> FakeEngine:
    return shared[0]


@pytest.fixture
def server(shared: tuple[FakeEngine, LiveServer]) -> Iterator[LiveServer]:
    yield shared[1]
    assert_unharmed(*shared)


def answered(server: LiveServer, raw: bytes) -> Answer:
    with server.connect() as sock:
        sock.sendall(raw)
        return read_answer(sock)


# HTTP/1.0.


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/v1/models"])
def test_http_1_0_needs_no_host(server: LiveServer, path: str) -> None:
    with server.connect() as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert received(sock).startswith(b"HTTP/1.1 200 "), "and the connection ends after it"


def test_http_1_0_opens_nothing_else(server: LiveServer) -> None:
    foreign = b"GET /health HTTP/1.0\r\nhost: evil.example\r\n\r\n"
    assert answered(server, foreign).error["code"] == "host_not_allowed"
    page = ask().replace(
        b"HTTP/1.1\r\nhost: localhost", b"HTTP/1.0\r\norigin: https://evil.example"
    )
    assert answered(server, page).error["code"] == "origin_not_allowed"
    assert answered(server, b"GET /health HTTP/1.1\r\n\r\n").error["code"] == "invalid_http"


# Empty lines.


@pytest.mark.parametrize("is_split", [False, True])
def test_an_empty_line_after_a_body_is_not_a_hang_up(
    fake: FakeEngine, server: LiveServer, is_split: bool
) -> None:
    fake.model.decode_gate.clear()
    fake.model.in_decode.clear()
    with server.connect() as sock:
        request = ask(3)
        if is_split:
            sock.sendall(request)
            wait_until(fake.model.in_decode.is_set)
            sock.sendall(b"\r")
            sock.sendall(b"\n")
        else:
            sock.sendall(request + b"\r\n")
        wait_until(fake.model.in_decode.is_set)
        wait_until(lambda: len(request) + 2 in server.n_received)
        fake.model.decode_gate.set()
        assert read_answer(sock).json["choices"][0]["text"] == fake_reply("x", 3)
        sock.sendall(ask(2) + b"\r\n")
        assert read_answer(sock).json["choices"][0]["text"] == fake_reply("x", 2)


def test_a_hang_up_after_an_empty_line_is_seen(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.decode_gate.clear()
    fake.model.in_decode.clear()
    with server.connect() as sock:
        sock.sendall(ask(400) + b"\r\n")
        wait_until(fake.model.in_decode.is_set)
    wait_until(lambda: server.running is None or server.running.abort.is_set())


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\r\n\r\n"], [b"\r", b"\n"], [b"\r\n\r", b"\n"]])
def test_empty_lines_before_a_request_are_passed_over(
    server: LiveServer, pieces: list[bytes]
) -> None:
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for n_tokens in (2, 3):
            for piece in pieces:
                sock.sendall(piece)
            sock.sendall(ask(n_tokens))
            assert read_answer(sock).json["choices"][0]["text"] == fake_reply("x", n_tokens)


def test_empty_lines_buy_no_time_and_have_an_end() -> None:
    with serving(header_timeout=0.2) as (fake, server):
        with server.connect() as sock:
            sock.sendall(b"\r\n")
            assert received(sock) == b"", "a client that asks nothing gets no answer"
        assert answered(server, b"\r\n" * 100_000).error["code"] == "invalid_http"
        assert_unharmed(fake, server)


# Targets.


def test_a_whole_url_is_a_path_and_a_host(server: LiveServer) -> None:
    raw = ask(3).replace(b" /v1/", b" http://localhost:%d/v1/" % server.port)
    assert answered(server, raw).json["choices"][0]["text"] == fake_reply("x", 3)
    models = b"GET https://127.0.0.1/v1/models?x=y HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    assert answered(server, models).json["data"][0]["id"] == "fake"


def test_the_host_of_the_url_counts(server: LiveServer) -> None:
    foreign = b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert answered(server, foreign).error["code"] == "host_not_allowed"
    ours = b"GET http://localhost/health HTTP/1.1\r\nhost: evil.example\r\n\r\n"
    assert answered(server, ours).status == 200
    for target in (b"ftp://localhost/health", b"http://a@localhost/health", b"health", b"*"):
        raw = b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target
        assert answered(server, raw).error["code"] == "invalid_http"


def test_a_whole_url_opens_no_path_without_a_key() -> None:
    with serving(api_keys=("key",)) as (_, server):
        for path, status in (("health", 200), ("v1/models", 401), ("health/../metrics", 401)):
            raw = f"GET http://health/{path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
            assert answered(server, raw).status == status
        asterisk = b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n"
        assert answered(server, asterisk).status == 401


@pytest.mark.parametrize("target", [b"*", b"http://localhost"])
def test_what_may_be_asked_of_the_server_as_a_whole(server: LiveServer, target: bytes) -> None:
    raw = b"OPTIONS %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % target
    answer = answered(server, raw)
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


# Compressed bodies.


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("identity, br", "br"),
        ("deflate, zstd", "deflate, zstd"),
        ("secret-1", "(unknown)"),
    ],
)
def test_a_compressed_body_is_refused_by_the_name_of_its_encoding(sent: str, named: str) -> None:
    origin = "https://a.example"
    with serving(allow_origins=(origin,)) as (_, server):
        body = gzip.compress(json.dumps(BODY).encode())
        headers = {"content-encoding": sent, "origin": origin}
        for path in (PATH, "/v1/chat/completions", "/tokenize", "/v1/token/decode"):
            answer = server.post(path, body, **headers)
            assert (answer.status, answer.error["code"]) == (415, "unsupported_encoding")
            assert f"content-encoding {named} " in answer.error["message"]
            assert answer.headers["accept-encoding"] == "identity"
            assert answer.headers["access-control-allow-origin"] == origin, "a page may read it"


@pytest.mark.parametrize("sent", ["identity", "", "identity, identity"])
def test_an_uncompressed_body_may_say_so(server: LiveServer, sent: str) -> None:
    answer = server.post(PATH, BODY, **{"content-encoding": sent})
    assert answer.json["choices"][0]["text"] == fake_reply("x", 2)
