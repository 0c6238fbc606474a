"""systemd's protocols: the socket that it opened for the server, and what the server tells it.

Owns the variables LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_PID and WATCHDOG_USEC, of
sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3). Without them nothing happens. Knows no
request and no engine.
"""

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress

_FIRST_FD = 3  # by the protocol


class PassedSocketError(Exception):
    """What the service manager passed is no socket that the server can listen on."""


def passed_socket() -> socket.socket | None:
    """The listening socket that systemd passed to this process; None if it passed none.

    Raises PassedSocketError. Programs that this process starts do not inherit it.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    n_passed = os.environ.get("LISTEN_FDS", "")
    if n_passed != "1":
        raise PassedSocketError(f"one socket is needed, not {n_passed or 'none'} (LISTEN_FDS)")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    try:
        sock = socket.socket(fileno=_FIRST_FD)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise PassedSocketError(f"file descriptor {_FIRST_FD}: {error.strerror}") from error
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        sock.close()
        raise PassedSocketError("the socket must be a TCP socket that listens (ListenStream=)")
    sock.set_inheritable(False)
    return sock


def tell(state: str) -> None:
    """Sends one state, such as READY=1, if the service manager listens. Never raises."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(state.encode(), address)


def sign_of_life() -> Callable[[], None]:
    """A function to call again and again, at least each quarter of the time that the watchdog of
    the service manager waits. It says that the server lives; without a watchdog it does nothing.
    """
    waits_s = _watchdog_seconds()
    if waits_s is None:
        return lambda: None
    told_at = -waits_s

    def live() -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= waits_s / 4:
            told_at = now
            tell("WATCHDOG=1")

    return live


def _watchdog_seconds() -> float | None:
    of_process = os.environ.get("WATCHDOG_PID")
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if of_process not in (None, str(os.getpid())) or not microseconds.isdecimal():
        return None
    return int(microseconds) / 1e6 or None
