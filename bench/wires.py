"""What each wire costs per token: the same streamed text from every route of a server, in turn.

.venv/bin/python -m bench.wires [--rounds 15] [--tokens 400] [--model PATH]
Prints, for each wire, the least and the median time per token from the first event to the last, in
microseconds, how each compares with that of /v1/completions, and bytes per token. A busy neighbour
makes a round slower, never faster. The server is a process of its own.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.stream_client import connected, request
from engine import DEFAULT_MODEL

TEXT = "Once upon a time"
FIRST = "/v1/completions"


def wires(n_tokens: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> route and body."""
    same = {"temperature": 0, "ignore_eos": True, "speculate": False, "stream": True}
    said = {**same, "max_tokens": n_tokens}
    messages = {**said, "messages": [{"role": "user", "content": TEXT}]}
    answer = {**same, "max_output_tokens": n_tokens, "input": TEXT}
    return {
        FIRST: (FIRST, {**said, "prompt": TEXT}),
        "/v1/completions, stored": (FIRST, {**said, "prompt": TEXT, "store": True}),
        "/v1/chat/completions": ("/v1/chat/completions", messages),
        "/v1/responses": ("/v1/responses", {**answer, "store": False}),
        "/v1/responses, stored": ("/v1/responses", answer),
        "/v1/messages": ("/v1/messages", messages),
        "/completion": ("/completion", {**said, "prompt": TEXT}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    options = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "server", "serve", str(options.model), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            report(measured(port, wires(options.tokens), options.rounds, options.tokens))
        finally:
            server.terminate()


def measured(
    port: int, asked: dict[str, tuple[str, dict[str, Any]]], rounds: int, n_tokens: int
) -> dict[str, list[tuple[float, float]]]:
    """Wire -> seconds and bytes per token, of each round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for number in range(-1, rounds):
        for name, (path, body) in asked.items():
            seconds, n_bytes = streamed(port, path, body)
            if number >= 0:  # the first round warms up
                found[name].append((seconds / (n_tokens - 1), n_bytes / n_tokens))
    return found


def streamed(port: int, path: str, body: dict[str, Any]) -> tuple[float, int]:
    """Seconds between the first and the last piece of an answer, and its bytes."""
    first = last = 0.0
    whole = b""
    with connected(port) as sock:
        sock.sendall(request("POST", path, body))
        while piece := sock.recv(2**16):
            last = time.perf_counter()
            whole += piece
            if not first and b"data: " in whole:
                first = last
    assert whole.startswith(b"HTTP/1.1 200"), whole[:400]
    return last - first, len(whole)


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    base = [seconds for seconds, _ in found[FIRST]]
    for name, rounds in found.items():
        each = [seconds for seconds, _ in rounds]
        n_bytes = statistics.median(n_bytes for _, n_bytes in rounds)
        figures = "".join(
            f"  {kind} {1e6 * of(each):6.1f} us ({of(each) / of(base):.3f})"
            for kind, of in (("least", min), ("median", statistics.median))
        )
        print(f"{name:26}{figures}  {n_bytes:4.0f} bytes")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, *, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            with connected(port) as sock:
                sock.sendall(request("GET", "/health/ready"))
                if b" 200 " in sock.recv(64):
                    return
        except ConnectionError:
            pass
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
