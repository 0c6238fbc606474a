"""The cost of serving: a real `soliton serve` over a socket, next to the engine in this process.

Owns the server process, the request and the client. Rounds in process and over HTTP alternate, so
that both see the machine in the same state. The difference is the server's work per token (event,
JSON, socket, thread hop) plus the client's reading.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engine import Engine, SamplingSettings

from .terminal import CommandError

PROMPT = "Once upon a time"
LOGPROBS = 5
_ROOT = Path(__file__).parents[2]
_READ_BYTES = 2**16
_TIMEOUT_S = 120
_MAX_STARTS = 3
_STARTS_LIMIT_S = 10  # no further start after this
_STREAM_S = 1.0
_FEWEST_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpFigures:
    """None means not measured. `tps` is tokens per second."""

    startup_s: float | None = None
    """From the start of the process to its ready line."""
    rss_mb: float | None = None
    """Resident memory of the server's process when it is ready."""
    http_tps: float | None = None
    http_tokens_per_block: float | None = None
    """Tokens that the client reads at once: fast tokens share a block."""
    http_added_us: float | None = None
    """Additional microseconds per token over HTTP."""
    http_added_low_us: float | None = None
    """The same in the lowest round. Not above 0, the difference is lost in the noise."""
    http_logprobs_tps: float | None = None
    http_logprobs_added_us: float | None = None
    http_logprobs_added_low_us: float | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A running `soliton serve`."""

    host: str
    port: int
    startup_s: float
    rss_mb: float


def measure_http(engine: Engine, options: list[str], *, rounds: int, n_tokens: int) -> HttpFigures:
    """Measures a server with the command line `options`, which must match `engine`, without drafts.

    A figure is the median of its rounds. A stream has at most `n_tokens`, and lasts about a second
    at most. Raises CommandError when the server fails.
    """
    options = [*options, "--speculate", "off"]
    startups: list[float] = []
    while len(startups) < min(rounds, _MAX_STARTS) - 1 and sum(startups) < _STARTS_LIMIT_S:
        with running_server(options) as server:
            startups.append(server.startup_s)
    per_second = 1 / local_seconds_per_token(engine, _FEWEST_TOKENS, logprobs=None)
    n_tokens = min(n_tokens, max(int(per_second * _STREAM_S), _FEWEST_TOKENS))
    with running_server(options) as server:
        startups.append(server.startup_s)
        plain = _compare(engine, server, rounds=rounds, n_tokens=n_tokens, logprobs=None)
        explained = _compare(engine, server, rounds=rounds, n_tokens=n_tokens, logprobs=LOGPROBS)
    return HttpFigures(
        startup_s=median(startups),
        rss_mb=server.rss_mb,
        http_tps=plain.tokens_per_second,
        http_tokens_per_block=plain.tokens_per_block,
        http_added_us=plain.added_us,
        http_added_low_us=plain.added_low_us,
        http_logprobs_tps=explained.tokens_per_second,
        http_logprobs_added_us=explained.added_us,
        http_logprobs_added_low_us=explained.added_low_us,
    )


class _Comparison(NamedTuple):
    """Streams over HTTP compared with the same streams in process."""

    tokens_per_second: float
    tokens_per_block: float
    added_us: float
    added_low_us: float


def _compare(
    engine: Engine, server: Server, *, rounds: int, n_tokens: int, logprobs: int | None
) -> _Comparison:
    over_http, per_block, added = [], [], []
    for _ in range(rounds):
        here = local_seconds_per_token(engine, n_tokens, logprobs=logprobs)
        there = http_stream(engine, server, n_tokens, logprobs=logprobs)
        over_http.append(there.seconds_per_token)
        per_block.append(there.tokens_per_block)
        added.append(there.seconds_per_token - here)
    return _Comparison(
        1 / median(over_http), median(per_block), 1e6 * median(added), 1e6 * min(added)
    )


def local_seconds_per_token(engine: Engine, n_tokens: int, *, logprobs: int | None) -> float:
    """Seconds between two tokens of one greedy stream of the engine."""
    generator = engine.generator
    generator.begin_stream_ex(
        engine.tokenizer.encode(PROMPT),
        SamplingSettings(temperature=0.0),
        max_new_tokens=n_tokens,
        ignore_eos=True,
        return_top_tokens=logprobs or 0,
    )
    generator.stream_ex()
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        pass
    return (time.perf_counter() - start) / (n_tokens - 1)


class HttpStream(NamedTuple):
    """A stream as seen by its client."""

    seconds_per_token: float
    tokens_per_block: float


def http_stream(
    engine: Engine, server: Server, n_tokens: int, *, logprobs: int | None
) -> HttpStream:
    """The same stream, read from the server."""
    body = {
        "model": engine.model_id,
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": n_tokens,
        "ignore_eos": True,
        "stream": True,
        "logprobs": logprobs,
    }
    blocks = list(_answer(server, body))
    answer = b"".join(block for _, block in blocks)
    status, _, _ = answer.partition(b"\r\n")
    if not status.startswith(b"HTTP/1.1 200"):
        raise CommandError(f"the server answered {answer.decode(errors='replace')}")
    # The server may send several events at once; those of the first block are not timed.
    events = [(now, block.count(b"data: {")) for now, block in blocks if b"data: {" in block]
    n_timed = n_tokens - events[0][1] if events else 0
    # Incomplete characters come with a later token, so there may be fewer events than tokens.
    if len(events) < 2 or n_timed < n_tokens // 2 or answer.count(b"data: {") < n_tokens // 2:
        raise CommandError(
            f"{n_tokens} tokens came in {len(events)} block(s), too few to measure: raise --tokens"
        )
    return HttpStream((events[-1][0] - events[0][0]) / n_timed, n_timed / (len(events) - 1))


def _answer(server: Server, body: dict[str, Any]) -> Iterator[tuple[float, bytes]]:
    """The bytes of an answer as they arrive, each block with its time. Uses no HTTP library: its
    work would count as the server's.
    """
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {server.host}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    with socket.create_connection((server.host, server.port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(head.encode() + text)
        while block := connection.recv(_READ_BYTES):
            yield time.perf_counter(), block


@contextmanager
def running_server(options: list[str]) -> Iterator[Server]:
    """`soliton serve` on a free port, in a separate process. Raises CommandError."""
    # Only what went wrong belongs into a report.
    command = [sys.executable, "-m", "server", "serve", *options]
    command += ["--port", "0", "--log-level", "warning"]
    start = time.perf_counter()
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            ready = process.stdout.readline()
            startup_s = time.perf_counter() - start
            url = re.search(r"http://([\d.]+):(\d+)", ready)
            if url is None:
                raise CommandError(f"`soliton serve` ended with exit code {process.wait()}")
            yield Server(url[1], int(url[2]), startup_s, _rss_mb(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)


def _rss_mb(pid: int) -> float:
    """Resident memory of a process, in megabytes (10**6 bytes)."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    kilobytes = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert kilobytes, "Linux reports the resident memory of a process"
    return int(kilobytes[1]) * 1024 / 1e6
