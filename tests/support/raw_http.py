"""Raw bytes to a live server over a fake engine, and the state they must leave it in."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import Answer, LiveServer, live_server, read_answer, wait_until

PATH = "/v1/completions"
HEAD = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
BODY = json.dumps({"model": "fake", "prompt": "x", "max_tokens": 2}).encode()


@contextmanager
def serving(
    *, protocol: type[asyncio.Protocol] | None = None, **options: Any
) -> Iterator[tuple[FakeEngine, LiveServer]]:
    fake = FakeEngine(max_seq_len=8192)
    with live_server(fake.as_engine, protocol=protocol, **options) as server:
        try:
            yield fake, server
        finally:
            fake.model.token_time = 0.0
            fake.model.prefill_gate.set()
            fake.model.decode_gate.set()
    assert fake.model.n_inside_max <= 1, "two callers were inside the engine at once"


def assert_unharmed(fake: FakeEngine, server: LiveServer) -> None:
    """The server lives, the engine is free, and the next answer is correct."""
    fake.model.prefill_gate.set()
    fake.model.decode_gate.set()
    fake.model.token_time = 0.0
    wait_until(lambda: not server.lease.busy and not server.lease.n_waiting)
    answer = server.post(PATH, {"model": "fake", "prompt": "next", "max_tokens": 30})
    assert answer.json["choices"][0]["text"] == fake_reply("next", 30)


def received(sock: socket.socket) -> bytes:
    """Everything until the server ends the connection, by FIN or RST."""
    data = b""
    try:
        while piece := sock.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return data


def told(server: LiveServer, raw: bytes) -> Answer:
    """The answer to these bytes, after which the server must end the connection."""
    with server.connect() as sock:
        sock.sendall(raw)
        answer = read_answer(sock)
        assert received(sock) == b"", "nothing comes after a refusal"
    return answer


def assert_told(server: LiveServer, raw: bytes, status: int, code: str) -> None:
    answer = told(server, raw)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.headers["connection"] == "close"


def ask(n_tokens: int = 400, prompt: str = "x", **fields: Any) -> bytes:
    body = {"model": "fake", "prompt": prompt, "max_tokens": n_tokens, **fields}
    text = json.dumps(body).encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(text) + text
