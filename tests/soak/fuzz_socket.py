"""Raw bytes on many connections at once: each is answered with 2xx or 4xx, or the connection is
closed; nothing hangs, nothing is a 5xx, and after every thousand the server is as before.

Processes send, this one serves; a case depends only on its seed. To send one again:

    python -m tests.soak.fuzz_socket PORT SEED
"""

import logging
import multiprocessing
import os
import re
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

from .goals import Goal, none_of
from .raw_requests import RawCase, raw_case

N_CASES = 100_000
PER_ROUND = 1000
N_CONNECTIONS = 16  # of each process
SEED = 20_261_121
# A client that has sent too little waits this long for an answer, then says that it will send no
# more; from then on the server has this time to end.
PATIENCE = 0.05
MOST_SECONDS = 20.0
REFERENCE = {"model": "fake", "prompt": "reference", "max_tokens": 8}


@dataclass
class Tally:
    """What became of some cases."""

    ends: Counter[str] = field(default_factory=Counter)
    """By the status of the first answer, "closed" or "reset"."""
    kinds: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, other: "Tally") -> None:
        self.ends += other.ends
        self.kinds += other.kinds
        self.faults += other.faults
        self.slowest = max(self.slowest, other.slowest)


class Complaints(logging.Handler):
    """Keeps what is logged as an error: an exception on a connection or in a task shows nowhere
    else.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def measure(scale: float) -> Iterator[Goal]:
    n_wanted = max(PER_ROUND, round(N_CASES * scale))
    n_processes = min(4, os.cpu_count() or 1) if scale >= 0.1 else 1
    fake = FakeEngine(max_seq_len=1024)
    tally = Tally()
    n_checks = n_contaminated = 0
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    context = multiprocessing.get_context("spawn")
    with (
        live_server(fake.as_engine, max_queue=1024, max_body_bytes=64 * 1024) as server,
        ProcessPoolExecutor(n_processes, mp_context=context) as pool,
    ):
        expected = _reference(server)
        for start in range(0, n_wanted, PER_ROUND):
            share = PER_ROUND // n_processes
            firsts = range(start, start + PER_ROUND, share)
            for part in pool.map(partial(send_many, server.port, share), firsts):
                tally.add(part)
            wait_until(lambda: not server.lease.busy and not server.lease.n_waiting)
            n_checks += 1
            n_contaminated += _reference(server) != expected
    logging.getLogger().removeHandler(complaints)
    for fault in [*tally.faults[:10], *complaints.lines[:5]]:
        print(fault)
    n = tally.ends.total()
    ends = ", ".join(f"{count} x {end}" for end, count in sorted(tally.ends.items()))
    served = tally.ends["200"]
    yield Goal(
        "raw sockets, cases", f"{n:,} ({ends}; seed {SEED})", f"{n_wanted:,}",
        n >= n_wanted and served > n / 50,
    )  # fmt: skip
    yield none_of("raw sockets, a 5xx, no HTTP, or a hang", len(tally.faults), n)
    yield none_of("raw sockets, an error in the log", len(complaints.lines), n)
    yield none_of("raw sockets, reference answers that differ", n_contaminated, n_checks)
    yield Goal(
        "raw sockets, slowest end", f"{tally.slowest:.2f} s", f"{MOST_SECONDS:g} s",
        tally.slowest < MOST_SECONDS,
    )  # fmt: skip


def _reference(server: LiveServer) -> Any:
    return server.post("/v1/completions", REFERENCE).json["choices"]


def send_many(port: int, n: int, first: int) -> Tally:
    """Sends `n` cases from `first` on, on several connections at once."""
    tally = Tally()
    with ThreadPoolExecutor(N_CONNECTIONS) as threads:
        for part in threads.map(lambda i: send_one(port, f"{SEED}-{i}"), range(first, first + n)):
            tally.add(part)
    return tally


def send_one(port: int, seed: str) -> Tally:
    case = raw_case(seed)
    began = time.monotonic()
    try:
        received, end = exchange(port, case)
        fault = None
    except TimeoutError:
        received, end, fault = b"", "hang", "the connection stays open"
    seconds = time.monotonic() - began
    statuses: list[int] = []
    if fault is None:
        try:
            statuses = list(statuses_of(received, is_head=case.data.lstrip().startswith(b"HEAD ")))
        except ValueError as error:
            fault = f"the answer is no HTTP: {error}: {received[:300]!r}"
    if any(status >= 500 for status in statuses):
        fault = f"answered {statuses}: {received[:600]!r}"
    end = str(statuses[0]) if statuses else end
    tally = Tally(Counter({end: 1}), Counter({case.kind: 1}), slowest=seconds)
    if fault is not None:
        tally.faults.append(f"seed {seed} ({case.kind}, {case.ending}): {fault}")
    return tally


def exchange(port: int, case: RawCase) -> tuple[bytes, str]:
    """Everything until the server closes, and how it does: "closed" or "reset".

    Raises TimeoutError if it does not.
    """
    deadline = time.monotonic() + MOST_SECONDS
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=MOST_SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in case.pieces:
                sock.sendall(piece)
            if case.ending == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b"", "left"
            if case.ending == "read" and not _read(sock, received, PATIENCE):
                return bytes(received), "closed"
            sock.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline:
                if not _read(sock, received, deadline - time.monotonic()):
                    return bytes(received), "closed"
        except (ConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            return bytes(received), "reset"
    raise TimeoutError


def _read(sock: socket.socket, received: bytearray, seconds: float) -> bool:
    """Reads until an answer is whole or the time is over. Returns whether the connection is still
    open.
    """
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            data = sock.recv(65536)
        except TimeoutError:
            return True
        if not data:
            return False
        received += data
        if _is_whole(received):
            return True
    return True


def _is_whole(received: bytes | bytearray) -> bool:
    head, found, body = bytes(received).partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    if not found or length is None:
        return bool(found) and received.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= int(length[1])


def statuses_of(data: bytes, *, is_head: bool) -> Iterator[int]:
    """The statuses of the answers in `data`, the last of which may be cut off.

    Raises ValueError for anything else.
    """
    while data:
        head, found, rest = data.partition(b"\r\n\r\n")
        line = re.match(rb"HTTP/1\.[01] (\d{3}) [ -~]*(\r\n|$)", head)
        if line is None:
            raise ValueError("no status line")
        if any(byte < 32 and byte not in b"\r\n\t" for byte in head):
            raise ValueError("a control character in a header")
        status = int(line[1])
        yield status
        if not found or is_head:
            return
        data = rest if status < 200 else _behind_body(head, rest)


def _behind_body(head: bytes, rest: bytes) -> bytes:
    if length := re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE):
        return rest[int(length[1]) :]
    if not re.search(rb"\r\ntransfer-encoding: *chunked", head, re.IGNORECASE):
        return b""
    while rest:
        line, found, rest = rest.partition(b"\r\n")
        if not found:
            return b""
        size = int(line, 16)
        rest = rest[size + 2 :]
        if size == 0:
            return rest
    return b""


if __name__ == "__main__":
    print(raw_case(sys.argv[2]))
    print(send_one(int(sys.argv[1]), sys.argv[2]))
