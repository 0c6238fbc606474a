"""The clients of bench.streams and bench.wire_costs, in a process of their own: they share no
interpreter with a server.

`python -m bench.stream_client PORT branches|controls|readers|paced`: a JSON value per line on
standard input, one for each on standard output.
"""

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_BUFFER = 2**20


def connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def request(method: str, path: str, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data


def answered(port: int, method: str, path: str, body: Any = None) -> tuple[bytes, float]:
    """The body, and milliseconds to its end."""
    asked, whole = request(method, path, body), b""
    with connected(port) as sock:
        started = time.perf_counter()
        sock.sendall(asked)
        while piece := sock.recv(2**16):
            whole += piece
    return whole.partition(b"\r\n\r\n")[2], 1000 * (time.perf_counter() - started)


def branch(port: int, asked: dict[str, Any]) -> Any:
    """Milliseconds to the first event of an answer, and to its event number `nth`."""
    first = nth = 0.0
    with connected(port) as sock:
        started, whole = time.perf_counter(), b""
        sock.sendall(request("POST", asked["path"], asked["body"]))
        while piece := sock.recv(2**16):
            whole += piece
            now, n_events = time.perf_counter() - started, whole.count(b"data: {")
            first = first or (now if n_events else 0.0)
            nth = nth or (now if n_events >= asked["nth"] else 0.0)
    assert nth, f"{n_events} events"
    return [1000 * first, 1000 * nth]


def control(port: int, asked: dict[str, Any]) -> Any:
    """The answer to a control, and milliseconds until it came."""
    body, ms = answered(port, "POST", asked["path"], asked["body"])
    return {**json.loads(body), "ms": ms}


def readers(port: int, asked: dict[str, Any]) -> Any:
    """Connect so many readers of a stream; at the next line read them all to the end, and tell how
    many events each got. Until then only the system's buffers take what comes.
    """
    socks = [connected(port) for _ in range(asked["n"])]
    for sock in socks:
        sock.sendall(request("GET", asked["path"]))
    for sock in socks:
        sock.recv(1, socket.MSG_PEEK)
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    numbers = []
    for sock in socks:
        whole = b""
        with sock:
            while piece := sock.recv(2**16):
                whole += piece
        numbers.append(whole.count(b"data: "))
    return numbers


def paced(port: int, asked: dict[str, Any]) -> Any:
    """Milliseconds from the first piece of an answer's body to its last, and the bytes of it."""
    first = last = 0.0
    with connected(port) as sock:
        whole = b""
        sock.sendall(request("POST", asked["path"], asked["body"]))
        while piece := sock.recv(2**16):
            whole += piece
            last = time.perf_counter()
            first = first or (last if whole.partition(b"\r\n\r\n")[2] else 0.0)
    assert whole.startswith(b"HTTP/1.1 200"), whole[:400]
    return [1000 * (last - first), len(whole)]


_KINDS: dict[str, Callable[[int, dict[str, Any]], Any]] = {
    "branches": branch, "controls": control, "readers": readers,
    "paced": paced,
}  # fmt: skip


def main() -> None:
    port, kind = int(sys.argv[1]), _KINDS[sys.argv[2]]
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(kind(port, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
