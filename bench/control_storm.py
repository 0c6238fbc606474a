"""As many controls a second as a client can send to one stream, and what they disturb.

`python -m bench.control_storm [--tokens 800 --sockets 64]`. The client is a process of its own: on
each of many connections one control is always under way (the server allows no more). The stream
must say what its twin says that nobody disturbs, and another request what it said before.
"""

import argparse
import json
import re
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter

from engine import DEFAULT_MODEL, Engine
from tests.support.live_server import LiveServer, live_server, wait_until

from .streams_http import begun

OTHER = {"prompt": "A dog", "max_tokens": 20, "seed": 8}
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_ENDED = 409
_WAIT_S = 0.2
_AFTER_S = 1.0
_MOST_S = 90.0


class Connection:
    """Sends one request again and again, and counts the statuses of the answers."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.n_sent = 0
        self.request = b""
        self._unread = b""

    def send(self) -> None:
        """One more."""
        self.sock.sendall(self.request)
        self.n_sent += 1

    def read(self) -> list[int]:
        """The statuses of the answers that have begun. Raises ConnectionError at the end."""
        data = self.sock.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed a connection")
        data = self._unread + data
        found = list(_STATUS.finditer(data))
        self._unread = data[max(found[-1].end() if found else 0, len(data) - 16) :]
        return [int(each[1]) for each in found]


def send_all(port: int, n_tokens: int, sockets: int) -> None:
    """The client: connects, says so, reads the path of a stream, and sends until that has ended and
    a second more. Prints how many were sent in how many seconds, and answered with which status.
    """
    connections = [Connection(port) for _ in range(sockets)]
    print("ready", flush=True)
    path = sys.stdin.readline().strip()
    body = json.dumps({"action": "extend", "max_tokens": n_tokens}).encode()  # changes nothing
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    seen: Counter[int] = Counter()
    with selectors.DefaultSelector() as selector:
        began = time.monotonic()
        end = began + _MOST_S
        for connection in connections:
            selector.register(connection.sock, selectors.EVENT_READ, connection)
            connection.request = request
            connection.send()
        while time.monotonic() < end:
            for key, _ in selector.select(_WAIT_S):
                found = key.data.read()
                seen.update(found)
                if found:
                    key.data.send()
            if seen[_ENDED] and end == began + _MOST_S:
                end = time.monotonic() + _AFTER_S
        seconds = time.monotonic() - began
    n_sent = sum(connection.n_sent for connection in connections)
    print(json.dumps({"sent": n_sent, "seconds": seconds, "seen": seen}), flush=True)


def measure(server: LiveServer, n_tokens: int, sockets: int) -> None:
    """Prints all figures."""
    twin = server.get(f"/v1/streams/{ended(server, begun(server, n_tokens))}").json
    calm = server.post("/v1/completions", OTHER).json["choices"]
    command = [
        sys.executable, "-m", "bench.control_storm", "--to", str(server.port),
        "--tokens", str(n_tokens), "--sockets", str(sockets),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        id_ = begun(server, n_tokens)
        client.stdin.write(f"/v1/streams/{id_}/control\n")
        client.stdin.flush()
        other = server.post("/v1/completions", OTHER).json["choices"]
        said = json.loads(client.stdout.read())
    stormy = server.get(f"/v1/streams/{ended(server, id_)}").json
    seen, seconds = said["seen"], said["seconds"]
    n_answered = sum(seen.values())
    statuses = ", ".join(f"{n:,} x {status}" for status, n in sorted(seen.items()))
    print(
        f"{sockets} connections, one control at once on each, {seconds:.1f} s: "
        f"{said['sent'] / seconds:,.0f} sent and {n_answered / seconds:,.0f} answered a second "
        f"({statuses})"
    )
    same = all(stormy[name] == twin[name] for name in ("text", "token_ids"))
    print(f"the stream is its twin: {same}; the other request says the same: {other == calm}")


def ended(server: LiveServer, id_: str) -> str:
    wait_until(lambda: server.get(f"/v1/streams/{id_}").json["state"] == "ended", seconds=600)
    return id_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--sockets", type=int, default=64)
    parser.add_argument("--to", type=int, help="a port: be the client")
    options = parser.parse_args()
    if options.to:
        send_all(options.to, options.tokens, options.sockets)
        return
    with live_server(Engine.load(DEFAULT_MODEL, device="cpu")) as server:
        measure(server, options.tokens, options.sockets)


if __name__ == "__main__":
    main()
