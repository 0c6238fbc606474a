"""The raw-socket fuzz: some of its cases against a live server, and that it sees what is wrong."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.soak import fuzz_socket
from tests.soak.fuzz_socket import SEED, Tally, send_one, statuses_of
from tests.soak.raw_requests import KINDS, raw_case
from tests.support.live_server import LiveServer

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nhi"


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """The port of a server that sends everybody the same; with None, nothing and no end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                if answer is None:
                    closing.wait(20)
                    return
                peer.sendall(answer)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass

        closing = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        closing.set()
        thread.join(20)


def test_nothing_is_found_in_some_cases(fake_server: LiveServer) -> None:
    tally = Tally()
    for i in range(200):
        tally.add(send_one(fake_server.port, f"{SEED}-{i}"))
    assert not tally.faults
    assert set(tally.kinds) == set(KINDS)
    assert tally.ends["200"] >= 5, "too few are served"
    assert fake_server.post("/v1/completions", {"model": "fake", "prompt": "x"}).status == 200


def test_a_seed_is_a_case() -> None:
    assert raw_case("1-2") == raw_case("1-2") != raw_case("1-3")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n", "answered [500]"),
        (SIZED + b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n", "answered [404, 503]"),
        (b"hello", "no HTTP"),
        (SIZED + b"more", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: \x1b[31m\r\ncontent-length: 0\r\n\r\n", "control character"),
        (None, "stays open"),
    ],
)
def test_what_is_wrong_is_seen(
    answer: bytes | None, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz_socket, "MOST_SECONDS", 20.0 if answer else 0.3)
    seed = next(s for i in range(99) if raw_case(s := f"control-{i}").kind == "valid")
    with answering(answer) as port:
        tally = send_one(port, seed)
    assert len(tally.faults) == 1
    assert fault in tally.faults[0]


def test_answers_are_read_one_after_the_other() -> None:
    both = CHUNKED + b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED
    assert list(statuses_of(both, is_head=False)) == [200, 100, 404]
    assert list(statuses_of(SIZED[:30], is_head=False)) == [404]
    assert list(statuses_of(b"", is_head=False)) == []
