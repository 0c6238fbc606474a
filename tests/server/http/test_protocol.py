"""What raw sockets can do to the server: each abuse is answered or ended, and costs nobody else
anything.

Every test ends with the reference request: its text must be exact, and the engine free. The checks
that plain uvicorn would not pass also run against it, and must fail there.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.http.lingering import LINGER_BYTES
from tests.support.asgi_client import paths_of
from tests.support.fake_engine import CHUNK, FakeEngine, fake_reply
from tests.support.live_server import LiveServer, read_answer, wait_until
from tests.support.raw_http import BODY, HEAD, ask, assert_told, assert_unharmed, received, serving

Check = Callable[[FakeEngine, LiveServer], None]


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


# Framing.

SMUGGLED = {
    "length and coding": HEAD
    + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "folded header": HEAD + b"content-length: %d\r\nx: a\r\n b\r\n\r\n" % len(BODY) + BODY,
    "bare line feeds": b"GET /health HTTP/1.1\nhost: localhost\n\n",
    "version 9.9": b"GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("raw", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_with_two_readings_is_refused(server: LiveServer, raw: bytes) -> None:
    assert_told(server, raw, 400, "invalid_http")


@pytest.mark.parametrize("raw", SMUGGLED.values(), ids=SMUGGLED)
def test_the_plain_protocol_takes_it(raw: bytes) -> None:
    """A negative control: the test above can fail."""
    with serving(protocol=H11Protocol) as (_, server), server.connect() as sock:
        sock.sendall(raw)
        assert read_answer(sock).status == 200


REFUSED = {
    "a bad chunk": (400, "invalid_http", HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nxx\r\n"),
    "many tiny chunks": (
        400,
        "invalid_http",
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 10**6,
    ),
    "a long extension": (
        400,
        "invalid_http",
        HEAD + b"transfer-encoding: chunked\r\n\r\n1;" + b"x" * 2**20,
    ),
    "many trailers": (
        431,
        "headers_too_large",
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 10**4 + b"\r\n",
    ),
    "a header of 1 MiB": (431, "headers_too_large", HEAD + b"x: " + b"x" * 2**20 + b"\r\n\r\n"),
    "257 headers": (431, "headers_too_large", HEAD + b"x: y\r\n" * 255 + b"\r\n"),
    "a target of 64 KiB": (414, "uri_too_long", b"GET /" + b"x" * 2**16 + b" HTTP/1.1\r\n\r\n"),
    "HTTP/2": (400, "invalid_http", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, "invalid_http", bytes.fromhex("16030100c8010000c40303") + bytes(200)),
    "no host": (400, "invalid_http", b"GET /health HTTP/1.1\r\n\r\n"),
}


@pytest.mark.parametrize(("status", "code", "raw"), REFUSED.values(), ids=REFUSED)
def test_abuse_is_refused_readably(server: LiveServer, status: int, code: str, raw: bytes) -> None:
    assert_told(server, raw, status, code)


def test_headers_without_end_take_no_memory(server: LiveServer) -> None:
    before = resident()
    with server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(400):
                sock.sendall(b"x: " + b"y" * 2**18 + b"\r\n")
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert resident() - before < 32 * 2**20, "100 MB were sent"


def resident() -> int:
    """Bytes in memory of this process, which is also the server's."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


# Bytes after a request, and the end of the client's direction.


def check_late_bytes_in_queue(fake: FakeEngine, server: LiveServer, late: bytes = b"x") -> None:
    fake.model.decode_gate.clear()
    with server.connect() as first, server.connect() as second:
        first.sendall(ask(3))
        wait_until(lambda: fake.model.held_in_decode)
        n_prompts = fake.model.n_prompts
        second.sendall(ask())
        wait_until(lambda: server.lease.n_waiting == 1)
        second.sendall(late)
        second.close()
        wait_until(lambda: server.lease.n_waiting == 0, seconds=1)
        fake.model.decode_gate.set()
        assert read_answer(first).status == 200
    assert fake.model.n_prompts == n_prompts, "the dead request never reached the engine"


def check_late_bytes_in_prefill(fake: FakeEngine, server: LiveServer, late: bytes = b"x") -> None:
    fake.model.prefill_gate.clear()
    fake.model.in_prefill.clear()
    n_decoded = fake.model.n_decoded
    with server.connect() as sock:
        sock.sendall(ask(prompt="y" * CHUNK * 100))
        wait_until(fake.model.in_prefill.is_set)
        sock.sendall(late)
        sock.close()
        wait_until(lambda: is_cancelled(server), seconds=1)
    fake.model.prefill_gate.set()
    wait_until(lambda: not server.lease.busy)
    assert fake.model.n_decoded == n_decoded, "no token was generated for a client that is gone"


def check_late_bytes_in_decode(fake: FakeEngine, server: LiveServer, late: bytes = b"x") -> None:
    fake.model.token_time = 0.01
    n_decoded = fake.model.n_decoded
    with server.connect() as sock:
        sock.sendall(ask())
        wait_until(lambda: fake.model.n_decoded > n_decoded + 2)
        sock.sendall(late)
        sock.close()
        wait_until(lambda: is_cancelled(server), seconds=1)
    wait_until(lambda: not server.lease.busy)


def is_cancelled(server: LiveServer) -> bool:
    running = server.running
    return running is None or running.abort.is_set()


LATE_CHECKS = [check_late_bytes_in_queue, check_late_bytes_in_prefill, check_late_bytes_in_decode]


@pytest.mark.parametrize(
    "late", [b"x", b"\r\n\r\n", b"\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"]
)
@pytest.mark.parametrize("check", LATE_CHECKS)
def test_bytes_behind_a_request_end_it(
    fake: FakeEngine, server: LiveServer, check: Callable[..., None], late: bytes
) -> None:
    check(fake, server, late)


@pytest.mark.parametrize("check", LATE_CHECKS)
def test_the_plain_protocol_misses_the_hang_up_behind_them(check: Check) -> None:
    """A negative control: the test above can fail."""
    with (
        serving(protocol=H11Protocol) as (fake, server),
        pytest.raises(AssertionError, match="did not happen"),
    ):
        check(fake, server)


def test_two_requests_at_once_are_none(fake: FakeEngine, server: LiveServer) -> None:
    n_prompts = fake.model.n_prompts
    with server.connect() as sock:
        sock.sendall(ask(3) + ask(3))
        assert received(sock) == b""
    assert fake.model.n_prompts == n_prompts


def test_one_request_after_the_other_is_what_a_connection_is_for(server: LiveServer) -> None:
    with server.connect() as sock:
        for _ in range(3):
            sock.sendall(ask(3))
            assert read_answer(sock).json["choices"][0]["text"] == fake_reply("x", 3)
            sock.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
            for byte in BODY:
                sock.sendall(b"1\r\n%c\r\n" % byte)
            sock.sendall(b"0\r\n\r\n")
            assert read_answer(sock).json["choices"][0]["text"] == fake_reply("x", 2)
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_answer(sock).status == 200


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_ends_its_direction_has_hung_up(
    fake: FakeEngine, server: LiveServer, is_stream: bool
) -> None:
    fake.model.token_time = 0.01
    n_decoded = fake.model.n_decoded
    with server.connect() as sock:
        sock.sendall(ask(stream=is_stream))
        wait_until(lambda: fake.model.n_decoded > n_decoded + 2)
        sock.shutdown(socket.SHUT_WR)
        wait_until(lambda: is_cancelled(server), seconds=5)
        assert b"[DONE]" not in received(sock)


def test_a_hang_up_is_seen_though_not_all_was_read(server: LiveServer) -> None:
    wait_until(lambda: not server.connections)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        wait_until(lambda: len(server.connections) == 1)
        (connection,) = server.connections
        accepted = connection.transport.get_extra_info("socket")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.sendall(ask(300, stream=True, logprobs=20))
        wait_until(lambda: connection.flow.write_paused)
        sock.shutdown(socket.SHUT_WR)
        wait_until(lambda: len(server.connections) == 0, seconds=5)


def test_a_hang_up_is_seen_while_a_long_body_is_prepared() -> None:
    """Longer than what uvicorn reads before it pauses."""
    prepared = threading.Event()
    with serving() as (fake, server):
        encode = fake.tokenizer.encode

        def slow_encode(text: str, **options: Any) -> list[int]:
            prepared.wait()
            return encode(text, **options)

        fake.tokenizer.encode = slow_encode  # type: ignore[method-assign]
        try:
            with server.connect() as sock:
                request = ask(prompt="u" * 200_000)
                sock.sendall(request)
                wait_until(lambda: server.n_received == [len(request)])
            wait_until(lambda: len(server.connections) == 0, seconds=5)
        finally:
            prepared.set()
        assert_unharmed(fake, server)


# What does not arrive.


def test_a_request_that_does_not_arrive_is_ended() -> None:
    with serving(header_timeout=0.2, body_timeout=0.4) as (fake, server):
        for raw in (
            b"GET /health HT",
            HEAD,
            HEAD + b"content-length: 9\r\n\r\n{",
            HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nab",
        ):
            assert_told(server, raw, 408, "slow_request")
        with server.connect() as sock:
            assert received(sock) == b"", "a client that asks nothing gets no answer"
        assert_unharmed(fake, server)


def test_bytes_one_by_one_buy_no_time() -> None:
    with serving(header_timeout=0.3, body_timeout=0.3) as (fake, server):
        for head in (b"GET /", HEAD + b"content-length: 1000\r\n\r\n"):
            with server.connect() as sock:
                sock.sendall(head)
                n_sent = 0
                while not select.select([sock], [], [], 0.02)[0] and n_sent < 500:
                    sock.sendall(b"x")
                    n_sent += 1
                assert read_answer(sock).status == 408
        assert_unharmed(fake, server)


def test_a_second_request_has_its_own_time() -> None:
    with serving(header_timeout=0.3) as (fake, server):
        with server.connect() as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_answer(sock).status == 200
            time.sleep(0.6)  # an idle connection is not a slow one
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert read_answer(sock).status == 200
            sock.sendall(b"GET /hea")
            assert read_answer(sock).status == 408
        assert_unharmed(fake, server)


def test_a_client_that_gets_100_continue_and_does_not_go_on_is_ended() -> None:
    with serving(body_timeout=0.3) as (fake, server):
        with server.connect() as sock:
            sock.sendall(HEAD + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n")
            answer = received(sock)
        assert answer.startswith(b"HTTP/1.1 100 ")
        assert b"HTTP/1.1 408 " in answer
        assert_unharmed(fake, server)


def test_a_request_that_ends_early_gets_an_error(server: LiveServer) -> None:
    for raw in (b"GET /hea", HEAD + b"content-length: 9\r\n\r\n{"):
        with server.connect() as sock:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            assert read_answer(sock).error["code"] == "invalid_http"


def test_a_body_that_is_longer_than_it_says_is_a_second_request(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(HEAD + b"content-length: %d\r\n\r\n" % (len(BODY) - 1) + BODY)
        assert received(sock) == b""


# Too much.


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_refusal_of_a_long_body_can_be_read(server: LiveServer, is_chunked: bool) -> None:
    body = b" " * 32 * 2**20
    framing = b"transfer-encoding: chunked" if is_chunked else b"content-length: %d" % len(body)
    if is_chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    for _ in range(3):
        assert_told(server, HEAD + framing + b"\r\n\r\n" + body, 413, "body_too_large")


def test_what_comes_after_a_refusal_has_a_limit(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(HEAD + b"content-length: %d\r\n\r\n" % 10**12)
        sent = send_until_ended(sock)
    assert sent < 2 * LINGER_BYTES


def test_an_unread_body_has_a_limit(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(
            b"GET /none HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % 10**12
        )
        assert read_answer(sock).status == 404
        assert send_until_ended(sock) < 2 * LINGER_BYTES


def send_until_ended(sock: socket.socket) -> int:
    sent = 0
    try:
        while sent < 4 * LINGER_BYTES:
            sent += sock.send(bytes(2**20))
    except OSError:
        pass
    return sent


def test_an_answer_before_the_body_leaves_the_connection_whole(server: LiveServer) -> None:
    with server.connect() as sock:
        for _ in range(2):
            sock.sendall(b"POST /none HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n")
            assert read_answer(sock).status == 404
            sock.sendall(b"hello")
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert read_answer(sock).status == 200


# What else a client may say.


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_head_is_get_without_the_body(server: LiveServer, path: str) -> None:
    whole, head = server.get(path), server.request("HEAD", path)
    assert (head.status, head.body) == (whole.status, b"")
    for name in ("content-length", "content-type"):
        assert head.headers[name] == whole.headers[name]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "FOO", "get"])
def test_no_method_hangs_or_takes_the_engine(
    fake: FakeEngine, server: LiveServer, method: str
) -> None:
    n_prompts = fake.model.n_prompts
    paths = {path for path, _ in paths_of(server.app.routes)} - {"/*"}  # which is OPTIONS *
    for path in ["/none", *paths]:
        answer = server.request(method, path, BODY, {"content-type": "application/json"})
        expected = (200, 307, 405, 422, 404) if method == "HEAD" else (405, 404)
        assert answer.status in expected, f"{method} {path}"
    assert fake.model.n_prompts == n_prompts


@pytest.mark.parametrize("wish", ["websocket", "h2c", "TLS/1.0"])
def test_an_upgrade_to_another_protocol_is_ignored(
    fake: FakeEngine, server: LiveServer, wish: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake.model.token_time = 0.01
    headers = f"connection: upgrade\r\nupgrade: {wish}\r\n".encode()
    with server.connect() as sock:
        sock.sendall(ask(3).replace(b"host: localhost\r\n", b"host: localhost\r\n" + headers))
        assert read_answer(sock).status == 200
        sock.sendall(ask().replace(b"host: localhost\r\n", b"host: localhost\r\n" + headers))
        wait_until(lambda: server.lease.busy)
        sock.close()
        wait_until(lambda: is_cancelled(server), seconds=5)
    assert not caplog.records


def test_nothing_raw_gets_into_the_log_or_a_header(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with server.connect() as sock:
        sock.sendall(
            b"GET /%1b[31m%0d%0aINFO:%20done HTTP/1.1\r\nhost: localhost\r\n"
            b"x-request-id: %0d%0ax: y\r\nuser-agent: \x9b31m\r\nconnection: close\r\n\r\n"
        )
        head = received(sock).partition(b"\r\n\r\n")[0]
    assert head.startswith(b"HTTP/1.1 404 ")
    for raw in (b"GET /\x1b[31m HTTP/1.1\r\n\r\n", HEAD + b"x-request-id: a\x1b\r\n\r\n"):
        assert_told(server, raw, 400, "invalid_http")
    text = head.replace(b"\r\n", b"").decode("latin-1") + caplog.text.replace("\n", "")
    assert text.isprintable()
    assert "[31m" not in text


def test_the_kernel_watches_for_peers_that_are_gone(server: LiveServer) -> None:
    with server.connect():
        wait_until(lambda: len(server.connections) == 1)
        (connection,) = server.connections
        sock = connection.transport.get_extra_info("socket")
        options = (
            "TCP_NODELAY",
            "TCP_KEEPIDLE",
            "TCP_KEEPINTVL",
            "TCP_KEEPCNT",
        )
        values = [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in options]
        assert values == [1, 10, 5, 2]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
