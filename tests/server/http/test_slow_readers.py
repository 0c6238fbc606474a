"""Clients that do not read: the engine is free, memory has a bound, and the log says who went."""

import ctypes
import logging
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from server.http.slow_readers import SlowReaders
from server.http.socket_options import unacknowledged_seconds
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"
DROPPED = "dropped a client"
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells what is acknowledged"
)
# Python has no names for these.
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=8192)
    fake.model.script = b"slow " * 1600
    return fake


def body(**fields: Any) -> dict[str, Any]:
    """A request for about half a megabyte."""
    return {"model": "fake", "prompt": "x", "max_tokens": 600, "logprobs": 20, **fields}


@contextmanager
def starved(server: LiveServer, *, path: str = PATH, **fields: Any) -> Iterator[socket.socket]:
    """A client that has sent a request and takes next to nothing until it reads."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(30)
        sock.connect(("127.0.0.1", server.port))
        server.send_on(sock, path, body(**fields) if path == PATH else fields)
        yield sock


def read_until_cut(sock: socket.socket) -> bytes:
    """Everything until the connection is reset; fails if it ends in another way."""
    received = b""
    while True:
        try:
            piece = sock.recv(1 << 20)
        except ConnectionResetError:
            return received
        assert piece, "a dropped client must not see an ordinary end"
        received += piece


def is_idle(server: LiveServer) -> bool:
    return not server.lease.busy and server.lease.n_waiting == 0


def has_served(fake: FakeEngine, server: LiveServer, n: int) -> bool:
    return fake.model.n_prompts >= n and is_idle(server)


def n_dropped(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message.startswith(DROPPED) for record in caplog.records)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_does_not_read_holds_nobody_up_and_is_dropped(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    with live_server(fake.as_engine, send_timeout=0.3) as server:
        with starved(server, stream=stream) as sock:
            wait_until(fake.model.in_decode.is_set)
            answer = server.post(PATH, body(max_tokens=5, logprobs=None))
            assert answer.json["choices"][0]["text"] == "slow "
            wait_until(lambda: n_dropped(caplog))
            assert b"[DONE]" not in read_until_cut(sock)
        (said,) = [r.message for r in caplog.records if r.message.startswith(DROPPED)]
        assert "read nothing for 0.3 s" in said


@pytest.mark.parametrize("stream", [True, False])
def test_scores_that_nobody_reads_hold_nobody_up(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    fields = {"prompt": "x", "continuations": ["abcd"] * 300, "top_logprobs": 20, "stream": stream}
    with (
        live_server(fake.as_engine, send_timeout=0.3) as server,
        starved(server, path="/v1/score", **fields) as sock,
    ):
        answer = server.post(PATH, body(max_tokens=5, logprobs=None))
        assert answer.json["choices"][0]["text"] == "slow "
        wait_until(lambda: n_dropped(caplog))
        assert b"[DONE]" not in read_until_cut(sock)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_reads_slowly_gets_everything(fake: FakeEngine, stream: bool) -> None:
    with (
        live_server(fake.as_engine, send_timeout=1.5) as server,
        starved(server, stream=stream) as sock,
    ):
        received = b""
        started = time.monotonic()
        # The kernel takes more once 32 KiB are read: 16 turns, however full the machine is.
        while time.monotonic() < started + 2.0:
            received += sock.recv(2048)
            time.sleep(0.01)
        assert is_idle(server), "the engine was free long before"
        while not received.endswith(b"0\r\n\r\n" if stream else b"}"):
            received += sock.recv(1 << 20)
        assert received.count(b"text_offset") == (600 if stream else 1)


@contextmanager
def deaf(sock: socket.socket) -> Iterator[None]:
    """The machine of `sock` gets no packet of this connection while the block runs."""
    refuse_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HL", 1, ctypes.addressof(refuse_all))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    try:
        yield
    finally:
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("i", 0))


def with_less_patience(server: LiveServer, seconds: float) -> None:
    readers: SlowReaders = server.app.state.slow_readers
    readers.acknowledge_seconds = seconds


@linux_only
def test_a_machine_that_acknowledges_nothing_is_gone(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    fake.model.token_time = 0.02
    with live_server(fake.as_engine) as server:
        with_less_patience(server, 1.0)
        with server.send(PATH, body(stream=True)) as sock:
            wait_until(fake.model.in_decode.is_set)
            with deaf(sock):
                wait_until(lambda: n_dropped(caplog))
                wait_until(lambda: is_idle(server))
        assert fake.model.n_decoded < 600, "nobody waited for the rest"
        (said,) = [r.message for r in caplog.records if r.message.startswith(DROPPED)]
        assert "acknowledged nothing for" in said


@linux_only
def test_a_machine_that_lives_is_not_gone_while_its_program_reads_nothing(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with live_server(fake.as_engine, send_timeout=60) as server, starved(server) as sock:
        with_less_patience(server, 0.5)
        wait_until(lambda: has_served(fake, server, 1))
        (connection,) = server.connections
        accepted = connection.transport.get_extra_info("socket")
        time.sleep(2.0)  # four times as long as is allowed without an acknowledgement
        assert unacknowledged_seconds(accepted) == 0.0, "everything that was sent is acknowledged"
        assert not n_dropped(caplog)
        assert len(read_answer(sock).json["choices"][0]["logprobs"]["tokens"]) == 600


@linux_only
def test_the_kernel_does_not_count_the_time_in_which_the_window_is_shut(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server, server.connect():
        wait_until(lambda: len(server.connections) == 1)
        (connection,) = server.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0


class OfOtherKernel(socket.socket):
    """A socket whose kernel says less about a connection, as an emulated one does."""

    def getsockopt(self, level: int, option: int, n_bytes: int = 0) -> Any:
        found = super().getsockopt(level, option, n_bytes)
        assert isinstance(found, bytes)
        return found[:8]


@linux_only
def test_a_kernel_that_says_less_of_a_connection_is_no_reason_to_end_it() -> None:
    with OfOtherKernel() as sock:
        assert unacknowledged_seconds(sock) == 0.0


def test_an_answer_of_which_too_much_is_unread_ends_with_an_error(fake: FakeEngine) -> None:
    limit = 256 * 1024
    with live_server(fake.as_engine, max_unread_bytes=limit) as server:
        with starved(server, stream=True, max_tokens=8000) as sock:
            wait_until(fake.model.in_decode.is_set)
            wait_until(lambda: is_idle(server))
            assert fake.model.n_decoded < 1000, "the engine was stopped"
            streamed = parse_event_stream(read_answer(sock).body)
        *chunks, last = streamed.chunks
        assert last["error"]["code"] == "unread_limit"
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        assert len(text) >= 50, "what was said before it is read"
        assert text == ("slow " * 1600)[: len(text)], "and nothing of it is missing"
        assert "[DONE]" not in streamed.data


def test_a_whole_answer_that_grows_too_large_is_a_400(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, max_unread_bytes=256 * 1024) as server:
        answer = server.post(PATH, body(max_tokens=8000))
        assert (answer.status, answer.error["code"]) == (400, "unread_limit")
        assert fake.model.n_decoded < 1000
        fake.model.token_time = 0.001  # so that the client has time to read
        as_events = server.post(PATH, body(max_tokens=1000, stream=True))
        assert as_events.body.endswith(b"data: [DONE]\n\n"), (
            "a client that reads may have any number"
        )


def test_all_unread_answers_together_have_a_bound(
    fake: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    # Each; four times as much together. Beside it, what the kernel holds of an answer is small: the
    # server does not count it, and how much it is depends on the machine.
    limit = 1024 * 1024
    with (
        live_server(fake.as_engine, max_unread_bytes=limit, send_timeout=60) as server,
        ExitStack() as clients,
    ):
        readers: SlowReaders = server.app.state.slow_readers
        socks = []
        for n in range(8):
            socks.append(clients.enter_context(starved(server, stream=True, max_tokens=8000)))
            wait_until(partial(has_served, fake, server, n + 1))
            assert readers.n_bytes <= 6 * limit, "one that runs is counted when the next one comes"
        wait_until(lambda: n_dropped(caplog) and readers.n_bytes <= 4 * limit)
        answer = server.post(PATH, body(max_tokens=20, stream=True))
        assert answer.body.endswith(b"data: [DONE]\n\n"), "the client that reads is not dropped"
        n_cut = sum(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 for sock in socks)
        assert 1 <= n_cut <= 5, "no more are dropped than necessary"


def test_the_log_says_a_storm_of_drops_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    readers = SlowReaders(send_timeout=1.0, max_bytes=1)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            readers.say_dropped("it read nothing")
        now += 11
        readers.say_dropped("it read nothing")
    assert [record.message for record in caplog.records] == [
        "dropped a client: it read nothing",
        "dropped a client: it read nothing; 49 more since the last such line",
    ]
