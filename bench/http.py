"""What HTTP costs per token: one completion, streamed by a server and by the engine right here.

The rounds alternate, so that both see the same machine; the difference of the medians is the
server's work per token (event, JSON, socket, thread hop) plus the reading of it here. Run it on an
otherwise idle machine:

    python -m bench.http [MODEL] [--tokens 256] [--rounds 5]
"""

import argparse
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from engine import DEFAULT_MODEL, Engine, SamplingSettings

PROMPT = "Once upon a time"
START_TIMEOUT_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--quantize", choices=["none", "8bit", "4bit"], default="none")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--logprobs", type=int, help="ask for logprobs with this many alternatives")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    engine = Engine.load(args.model, quantize=args.quantize)
    local, remote = [], []
    with running_server(args.model, quantize=args.quantize) as client:
        print("round   in process tok/s   over HTTP tok/s")
        for number in range(1, args.rounds + 1):
            local.append(local_seconds_per_token(engine, args.tokens, logprobs=args.logprobs))
            remote.append(
                http_seconds_per_token(client, engine, args.tokens, logprobs=args.logprobs)
            )
            print(f"{number:>5} {1 / local[-1]:>18.1f} {1 / remote[-1]:>17.1f}")
    in_process, over_http = statistics.median(local), statistics.median(remote)
    print(
        f"median {1 / in_process:.1f} tok/s in process, {1 / over_http:.1f} over HTTP: "
        f"{(over_http - in_process) * 1e6:.0f} us per token"
    )


def never_ending(engine: Engine) -> dict[int, float]:
    """A logit bias that keeps the stream from ending before its length."""
    return dict.fromkeys(engine.eos_token_ids, -100.0)


def local_seconds_per_token(engine: Engine, n_tokens: int, *, logprobs: int | None) -> float:
    """Seconds between two tokens of one greedy stream of the engine."""
    generator = engine.generator
    generator.begin_stream_ex(
        engine.tokenizer.encode(PROMPT),
        SamplingSettings(temperature=0.0, logit_bias=never_ending(engine)),
        max_new_tokens=n_tokens,
        return_top_tokens=logprobs or 0,
    )
    generator.stream_ex()
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        pass
    return (time.perf_counter() - start) / (generator.n_completion_tokens - 1)


def http_seconds_per_token(
    client: httpx.Client, engine: Engine, n_tokens: int, *, logprobs: int | None
) -> float:
    """Seconds between two tokens of the same stream read from a server."""
    body = {
        "model": engine.model_id,
        "prompt": PROMPT,
        "temperature": 0,
        "max_tokens": n_tokens,
        "logit_bias": {str(token_id): bias for token_id, bias in never_ending(engine).items()},
        "stream": True,
        "logprobs": logprobs,
    }
    n_events, first, last = 0, 0.0, 0.0
    with client.stream("POST", "/v1/completions", json=body) as response:
        if response.is_error:
            sys.exit(f"the server answered {response.status_code}: {response.read().decode()}")
        for block in response.iter_bytes():
            last = time.perf_counter()
            first = first or last
            n_events += block.count(b"data: {")
    if n_events < n_tokens // 2:
        sys.exit(f"only {n_events} events for {n_tokens} tokens: nothing can be measured")
    return (last - first) / (n_tokens - 1)


@contextmanager
def running_server(model: Path, *, quantize: str) -> Iterator[httpx.Client]:
    """A client of `soliton serve` in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "server", "serve", str(model)]
    command += ["--port", str(port), "--quantize", quantize]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                wait_until_ready(client, process)
                yield client
        finally:
            process.send_signal(signal.SIGTERM)


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"the server ended with {process.returncode}")
        try:
            if client.get("/health/ready").is_success:
                return
        except httpx.ConnectError:
            time.sleep(0.1)
    sys.exit(f"the server was not ready after {START_TIMEOUT_S} s")


if __name__ == "__main__":
    main()
