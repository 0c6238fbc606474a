"""systemd's protocols with real processes: a passed socket, and what the server tells."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from server.process.service_manager import PassedSocketError, passed_socket, sign_of_life, tell
from tests.server.process.test_drain import ROOT, SERVE

DEADLINE_S = 60
SOURCE = SERVE.replace("TOKEN_S", "0").replace("TIMES", "1")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where a service manager listens for what its services tell."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def start(*arguments: str, command: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*command, sys.executable, "-c", SOURCE, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def status_of(url: str) -> int:
    """As soon as anybody listens."""
    until = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urlopen(url, timeout=DEADLINE_S) as answer:
                return int(answer.status)
        except URLError as error:
            if time.monotonic() > until or not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.05)


def told(manager: socket.socket) -> str:
    return manager.recv(100).decode()


def test_a_server_says_that_it_is_ready_lives_and_stops(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    process = start("--port", "0", "--hang-seconds", "1")
    try:
        states = {told(manager)}
        while not {"READY=1", "WATCHDOG=1"} <= states:
            states.add(told(manager))
        assert told(manager) == told(manager) == "WATCHDOG=1", "again and again"
        process.send_signal(signal.SIGTERM)
        while (state := told(manager)) != "STOPPING=1":
            assert state == "WATCHDOG=1"
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode == 0


def test_a_server_listens_on_the_socket_that_it_is_given() -> None:
    """systemd-socket-activate opens the socket, and starts the server for the first connection."""
    program = shutil.which("systemd-socket-activate")
    if program is None:
        pytest.skip("systemd is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start("--port", "1", command=(program, "-l", f"127.0.0.1:{port}"))
    try:
        assert status_of(f"http://127.0.0.1:{port}/health") == 200
        assert process.stdout is not None
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize("n", ["0", "2", ""])
def test_another_number_of_sockets_is_an_error(monkeypatch: pytest.MonkeyPatch, n: str) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", n)
    with pytest.raises(PassedSocketError, match="one socket is needed"):
        passed_socket()


def test_a_socket_for_another_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert passed_socket() is None


def test_without_a_service_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    tell("READY=1")
    sign_of_life()()


def test_a_manager_that_is_gone_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/no/such/socket")
    tell("READY=1")


def test_a_watchdog_of_another_process_is_not_fed(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    sign_of_life()()
    manager.settimeout(0)
    with pytest.raises(BlockingIOError):
        manager.recv(1)
