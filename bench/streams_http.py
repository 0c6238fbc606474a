"""Kept streams over HTTP: how soon a branch answers, when a control takes effect, what readers
cost, and what is kept. Clients are in another process; times of tokens are the server's own.
"""

import gc
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from engine import Engine
from tests.support.live_server import LiveServer, live_server, wait_until

PROMPT = [50 + (7 * i + 3) % 1000 for i in range(100)]
OTHER = [9] * 80
N_BRANCHES = 20
N_CONTROLS = 20
N_READERS = 50
N_TURNS = 5


class Receipts:
    """Around the app: how many tokens the engine had when the body of each control had come."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.n_tokens: list[int] = []

    def wrapped(self, app: ASGIApp) -> ASGIApp:
        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            if str(scope.get("path", "")).endswith("/control"):
                self.n_tokens.append(self._engine.generator.n_completion_tokens)
            await app(scope, receive, send)

        return noting


class Client:
    """bench.stream_client."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, value: Any) -> Any:
        self.send(value)
        return self.answer()


@contextmanager
def client(server: LiveServer, kind: str) -> Iterator[Client]:
    command = [sys.executable, "-m", "bench.stream_client", str(server.port), kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Client(process)
        assert process.stdin is not None
        process.stdin.close()


def measure(engine: Engine, *, n_tokens: int) -> None:
    """Prints what branches, controls and readers of a stream of `n_tokens` tokens cost."""
    receipts = Receipts(engine)
    with live_server(engine, wrapped=receipts.wrapped, keep_streams_mb=1024) as server:
        branches(server, n_tokens)
        controls(server, receipts, n_tokens)
        readers(server, engine, n_tokens)


def body(n_tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "prompt": PROMPT, "max_tokens": n_tokens, "ignore_eos": True, "seed": 1, "store": True,
        "speculate": False, **more,
    }  # fmt: skip


def branches(server: LiveServer, n_tokens: int) -> None:
    parent = server.post("/v1/completions", body(n_tokens)).json["id"]
    path, shown = f"/v1/streams/{parent}", server.get(f"/v1/streams/{parent}").json
    step = median(gaps(times(shown)))
    found, new, plain = [], [], []
    with client(server, "branches") as asked:
        for i in range(N_BRANCHES):
            at = n_tokens // 3 + i
            for first in (300 + i, 301 + i):  # so that the parent is in the store only
                server.post("/v1/completions", {"prompt": [first, *OTHER], "max_tokens": 1})
            again = {"prompt": [301 + i, *OTHER], "max_tokens": 2, "stream": True}
            told, _ = asked.ask({"path": "/v1/completions", "body": again, "nth": 1})
            plain.append(told)
            server.post("/v1/completions", {"prompt": [300 + i, *OTHER], "max_tokens": 1})
            branch = {"at": at, "token_id": 77, "stream": True, "max_tokens": at + 8}
            told, own = asked.ask({"path": f"{path}/branch", "body": branch, "nth": at + 1})
            found.append(told)
            new.append(own)
    print(
        f"branch at {n_tokens // 3} of {n_tokens} tokens: {spread(found)} ms to the first event, "
        f"{spread(new)} to its own first token, a step of {step:.2f} and {median(new) - step:.2f}; "
        f"a cached completion {median(plain):.2f}"
    )


def controls(server: LiveServer, receipts: Receipts, n_tokens: int) -> None:
    later, ms = [], []
    with client(server, "controls") as asked:
        for i in range(N_CONTROLS):
            id_ = begun(server, n_tokens, seed=i)
            said = {"action": "set", "settings": {"temperature": 0.5 + i / 100}}
            done = asked.ask({"path": f"/v1/streams/{id_}/control", "body": said})
            later.append(done["completion_tokens"] - receipts.n_tokens[-1])
            ms.append(done["ms"])
            server.request("DELETE", f"/v1/streams/{id_}")
    print(
        f"control: {median(later):g} tokens ({min(later)} to {max(later)}) after its request "
        f"reached the app; acknowledged in {median(ms):.2f} ms ({min(ms):.2f} to {max(ms):.2f})"
    )


def readers(server: LiveServer, engine: Engine, n_tokens: int) -> None:
    """Speeds with readers and without in turns, of the same tokens of the same stream."""
    slower, alone = [], []
    for _ in range(N_TURNS):
        id_ = begun(server, n_tokens)
        with client(server, "readers") as asked:
            path = f"/v1/streams/{id_}/events"
            assert asked.ask({"path": path, "n": N_READERS}) == "ready"
            start = engine.generator.n_completion_tokens
            with_readers = ended(server, id_)
            asked.send("")
            numbers = asked.answer()
        assert len(set(numbers)) == 1, "every reader gets the same"
        without = ended(server, begun(server, n_tokens))
        slower.append(speed(with_readers, start))
        alone.append(speed(without, start))
    costs = [1 - a / b for a, b in zip(slower, alone, strict=True)]
    print(
        f"{N_READERS} readers: {median(slower):.1f} tokens/s, {median(alone):.1f} without, from "
        f"token {start} to {n_tokens}: they cost {median(costs):.1%} "
        f"({min(costs):.1%} to {max(costs):.1%})"
    )


def kept(engine: Engine, n_kept: int) -> None:
    """Fill the server with chats of 500 tokens, within its usual budget."""
    with live_server(engine) as server:
        gc.collect()
        before = resident()
        for i in range(n_kept):
            chat = {"messages": [{"role": "user", "content": f"Tell me story {i}."}]}
            said = {**chat, "max_tokens": 500, "ignore_eos": True, "seed": i, "temperature": 1.0}
            assert server.post("/v1/chat/completions", {**said, "store": True}).status == 200
        gc.collect()
        mb = (resident() - before) / 2**20
        n_listed = listed(server)
    print(f"{n_kept} chats of 500 tokens, {n_listed} still kept: {mb:.1f} MB more in use")


def listed(server: LiveServer) -> int:
    n, after = 0, ""
    while True:
        page = server.get(f"/v1/streams?limit=100{after}").json
        n += len(page["data"])
        if not page["has_more"]:
            return n
        after = f"&after={page['last_id']}"


def begun(server: LiveServer, n_tokens: int, seed: int = 1) -> str:
    """A stream in the background, whose first reader leaves again."""
    said = body(n_tokens, seed=seed, background=True, stream=True)
    sock = server.send("/v1/completions", said)
    with sock:
        data = b""
        while b'"id":"' not in data:
            data += sock.recv(4096)
        while b'"' not in data.partition(b'"id":"')[2]:
            data += sock.recv(4096)
    return data.partition(b'"id":"')[2].partition(b'"')[0].decode()


def ended(server: LiveServer, id_: str) -> list[float]:
    """When each token came, milliseconds, once the stream has ended."""
    wait_until(lambda: server.lease.running is None, seconds=600)
    return times(server.get(f"/v1/streams/{id_}").json)


def times(shown: dict[str, Any]) -> list[float]:
    return [token["time_ms"] for token in shown["tokens"]]


def spread(all_ms: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{median(all_ms):.2f} ({min(all_ms):.2f} to {max(all_ms):.2f})"


def gaps(all_ms: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(all_ms)]


def speed(all_ms: list[float], start: int) -> float:
    """Tokens per second from token `start` on."""
    return 1000 * (len(all_ms) - 1 - start) / (all_ms[-1] - all_ms[start])


def resident() -> int:
    """Bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
