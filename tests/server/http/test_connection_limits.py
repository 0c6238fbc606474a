"""How many connections there may be, and which of them keep a place when there are too many."""

import logging
import re
import socket
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from server.http.connection_table import ConnectionTable, Phase
from server.http.slow_readers import SlowReaders
from server.http.socket_options import TOLD_OF_LIMIT
from tests.support.live_server import LiveServer, read_answer, wait_until
from tests.support.raw_http import HEAD, ask, assert_unharmed, received, serving

ROOT = Path(__file__).parents[3]
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextmanager
def crowd(port: int, n_connections: int) -> Iterator[list[socket.socket]]:
    """This many connections that say nothing."""
    with ExitStack() as stack:
        address = ("127.0.0.1", port)
        yield [
            stack.enter_context(socket.create_connection(address, timeout=60))
            for _ in range(n_connections)
        ]


def has_read(server: LiveServer, data: bytes) -> bool:
    """Whether there is one connection, and the server has read this on it."""
    return server.n_received == [len(data)]


def has_ended(sock: socket.socket) -> bool:
    return received(sock) == b""


@pytest.mark.parametrize("per_address", [None, 5, 100])
def test_silent_connections_lock_nobody_out(per_address: int | None) -> None:
    with serving(max_connections=8, max_connections_per_address=per_address) as (fake, server):
        for _ in range(3):
            with crowd(server.port, 60):
                assert server.get("/health").status == 200
                with server.connect() as sock:
                    sock.sendall(ask(3))
                    assert read_answer(sock).status == 200
            assert_unharmed(fake, server)
        wait_until(lambda: len(server.connections) == 0)


def test_the_oldest_that_asks_nothing_goes_and_one_that_was_answered_stays() -> None:
    with serving(max_connections=4, max_connections_per_address=4) as (fake, server):
        with crowd(server.port, 1) as (known,):
            known.sendall(HEALTH)
            assert read_answer(known).status == 200
            with crowd(server.port, 3) as (first, second, third):
                wait_until(lambda: len(server.connections) == 4)
                with crowd(server.port, 2) as (_, newest):
                    assert has_ended(first)
                    assert has_ended(second)
                    for sock in (third, newest, known):
                        sock.sendall(HEALTH)
                        assert read_answer(sock).status == 200
                    with crowd(server.port, 1) as (late,):
                        late.sendall(HEALTH)
                        assert read_answer(late).status == 200
        assert_unharmed(fake, server)


def test_a_client_that_sent_half_a_request_gets_an_error_when_its_place_is_taken() -> None:
    with serving(max_connections=1) as (fake, server):
        for half in (b"GET /hea", HEAD + b"content-length: 9\r\n\r\n{"):
            with crowd(server.port, 1) as (slow,):
                slow.sendall(half)
                wait_until(partial(has_read, server, half))
                assert server.get("/health").status == 200
                answer = read_answer(slow)
                assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
            wait_until(lambda: len(server.connections) == 0)
        assert_unharmed(fake, server)


def test_when_all_wait_for_an_answer_the_next_gets_too_many_connections() -> None:
    with serving(max_connections=3) as (fake, server), ExitStack() as stack:
        fake.model.decode_gate.clear()
        busy = [stack.enter_context(server.connect()) for _ in range(3)]
        for sock in busy:
            sock.sendall(ask(3))
        wait_until(lambda: server.lease.n_waiting == 2)
        with server.connect() as sock:
            answer = read_answer(sock)
            assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
            assert int(answer.headers["retry-after"]) > 0
        with crowd(server.port, 100) as (*_, newest):
            assert read_answer(newest).status == 503, "also in a crowd"
            wait_until(lambda: len(server.connections) <= 3 + TOLD_OF_LIMIT)
        fake.model.decode_gate.set()
        assert [read_answer(sock).status for sock in busy] == [200] * 3
        for sock in busy:
            sock.close()
        wait_until(lambda: len(server.connections) == 0)
        assert_unharmed(fake, server)


def test_an_answer_that_is_read_slowly_is_not_cut_for_a_newcomer() -> None:
    with serving(max_connections=2, max_connections_per_address=2) as (fake, server):
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            slow.sendall(ask(600, logprobs=20))
            wait_until(lambda: fake.model.n_prompts == 1 and not server.lease.busy)
            readers: SlowReaders = server.app.state.slow_readers
            wait_until(lambda: readers.n_bytes)
            with crowd(server.port, 10):
                assert server.get("/health").status == 200
            assert len(read_answer(slow).json["choices"][0]["logprobs"]["tokens"]) == 600
        assert_unharmed(fake, server)


def test_health_has_a_listener_of_its_own() -> None:
    limits: dict[str, Any] = {"max_connections": 2, "health_port": 0, "api_keys": ("key",)}
    with serving(**limits) as (fake, server), ExitStack() as stack:
        assert server.health_port
        fake.model.decode_gate.clear()
        key = {"authorization": "Bearer key"}
        for _ in range(2):
            sock = stack.enter_context(server.connect())
            sock.sendall(ask(3).replace(b"host:", b"authorization: Bearer key\r\nhost:"))
        wait_until(lambda: server.lease.n_waiting == 1)
        stack.enter_context(crowd(server.port, 50))
        stack.enter_context(crowd(server.health_port, 50))
        checks = LiveServer(server.health_port, server.app, server.stop, server.connections)
        for path in ("/health", "/health/live", "/health/ready", "/ping", "/v1/health"):
            assert checks.get(path).status == 200
        for path in ("/v1/models", "/metrics", "/", "/health/", "*"):
            answer = checks.get(path, **key)
            assert answer.status in (400, 404), "no other route is there"
        assert checks.get("/health", host="evil.example").status == 200, "there is a key"
        fake.model.decode_gate.set()


def test_a_storm_of_refusals_is_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving(max_connections=2) as (_, server), crowd(server.port, 200):
        assert server.get("/health").status == 200
        for _ in range(50):
            with server.connect() as sock:
                sock.sendall(b"nonsense\r\n\r\n")
                assert read_answer(sock).status == 400
    lines = [record.message for record in caplog.records if record.name == "server.http.protocol"]
    kinds = {line.partition("; ")[0] for line in lines}
    assert len(kinds) >= 2
    assert len(lines) <= 6 * len(kinds), "at most one of a kind in ten seconds"


class _Place:
    """A connection that only records whether it had to go."""

    def __init__(self) -> None:
        self.had_to_go = False
        self.was_cut = False

    def make_room(self) -> None:
        self.had_to_go = True

    def cut(self) -> None:
        self.was_cut = True


def test_the_address_with_most_connections_loses_a_place() -> None:
    table = ConnectionTable(limit=5, per_address=4, told=1)
    few, *many = [_Place() for _ in range(5)]
    assert table.admit(few, "2001:db8:1::1")
    for index, place in enumerate(many):
        assert table.admit(place, f"2001:db8:2::{index}"), "all of one network"
    assert table.admit(_Place(), "192.0.2.1")
    assert [place.had_to_go for place in (few, *many)] == [False, True, False, False, False]
    assert table.admit(_Place(), "::ffff:192.0.2.1")
    assert not few.had_to_go
    assert len(table) == 5


def test_the_phase_decides_before_the_age() -> None:
    table = ConnectionTable(limit=4, per_address=4, told=1)
    places = [_Place() for _ in range(4)]
    phases = (Phase.BUSY, Phase.ARRIVING, Phase.KEPT, Phase.SILENT)
    for place, phase in zip(places, phases, strict=True):
        assert table.admit(place, "192.0.2.1")
        table.place(place, phase)
    gone = []
    for _ in range(3):
        newcomer = _Place()
        assert table.admit(newcomer, "192.0.2.1")
        table.place(newcomer, Phase.BUSY)
        gone.append([place.had_to_go for place in places].count(True))
    assert gone == [1, 2, 3]
    assert [place.had_to_go for place in places] == [False, True, True, True]
    assert not table.admit(_Place(), "192.0.2.1")
    table.leave(places[0])
    assert table.admit(_Place(), "192.0.2.1")


def test_repeating_a_phase_makes_no_connection_younger() -> None:
    table = ConnectionTable(limit=2, per_address=2, told=1)
    old, young = _Place(), _Place()
    for place in (old, young):
        assert table.admit(place, "192.0.2.1")
    table.place(old, Phase.SILENT)
    assert table.admit(_Place(), "192.0.2.1")
    assert (old.had_to_go, young.had_to_go) == (True, False)


def test_the_newest_of_those_turned_away_may_read_the_answer() -> None:
    table = ConnectionTable(limit=1, per_address=1, told=2)
    places = [_Place() for _ in range(4)]
    for place in places:
        table.turn_away(place)
    assert [place.was_cut for place in places] == [True, True, False, False]
    table.leave(places[2])
    table.turn_away(_Place())
    assert not places[3].was_cut


def test_a_crowd_takes_neither_the_last_descriptor_nor_the_health_checks(tmp_path: Path) -> None:
    serve = [sys.executable, "-m", "server", "serve", "--port", "0", "--health-port", "0"]
    command = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *serve]
    log = tmp_path / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            assert process.stdout
            found = re.search(rb"http://127.0.0.1:(\d+)", process.stdout.readline())
            said = re.search(r"health checks are on port (\d+)", log.read_text())
            assert found
            assert said
            ports = int(found[1]), int(said[1])
            with crowd(ports[0], 200), crowd(ports[1], 50):
                wait_until(lambda: "ended an idle connection" in log.read_text())
                for port in ports:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
                        assert answer.status == 200
        finally:
            process.kill()
    assert "too many open files" not in log.read_text().lower()


def test_a_thousand_connections_that_come_and_go() -> None:
    with serving() as (fake, server):

        def visit(_: int) -> None:
            with server.connect() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(visit, range(1000)))
        wait_until(lambda: len(server.connections) == 0)
        assert_unharmed(fake, server)
