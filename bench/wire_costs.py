"""What a streamed token costs on each wire, beside /v1/completions, on the built-in model.

Every wire streams as many tokens from a prompt of about the same length, in turns; the client is in
a process of its own. Two figures per wire: the time from the first event to the last, per token,
and the processor time of the server, per token. Both include the pass of the model, which is the
same.

`python -m bench.wire_costs [--tokens 600] [--rounds 9]`
"""

import argparse
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from engine import DEFAULT_MODEL, Engine
from tests.support.live_server import live_server

from .streams_http import Client, client

MODEL = "soliton-default"
STORY = "Once upon a time"
ASKED = [{"role": "user", "content": STORY}]
REFERENCE = "/v1/completions"


class Cost(NamedTuple):
    """Of one answer, per token."""

    us: float
    cpu_us: float
    n_bytes: float


def bodies(n_tokens: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> path and body."""
    text = {"model": MODEL, "prompt": STORY, "stream": True}
    chat = {"model": MODEL, "messages": ASKED, "stream": True}
    long = {"ignore_eos": True, "seed": 1, "temperature": 1}
    response = {"model": MODEL, "input": STORY, "stream": True, **long}
    response["max_output_tokens"] = n_tokens
    options = {"num_predict": n_tokens, **long}
    return {
        REFERENCE: (REFERENCE, {**text, **long, "max_tokens": n_tokens}),
        "/v1/chat/completions": ("/v1/chat/completions", {**chat, **long, "max_tokens": n_tokens}),
        "/completion": ("/completion", {**text, **long, "n_predict": n_tokens}),
        "/v1/messages": ("/v1/messages", {**chat, **long, "max_tokens": n_tokens}),
        "/v1/responses": ("/v1/responses", {**response, "store": False}),
        "the same, stored": ("/v1/responses", response),
        "/api/chat": ("/api/chat", {**chat, "options": options}),
        "/api/generate": ("/api/generate", {**text, "raw": True, "options": options}),
    }


def measured(asked: Client, path: str, body: dict[str, Any], n_tokens: int) -> Cost:
    since = time.process_time()
    ms, n_bytes = asked.ask({"path": path, "body": body})
    cpu_s = time.process_time() - since
    return Cost(1000 * ms / (n_tokens - 1), 1e6 * cpu_s / n_tokens, n_bytes / n_tokens)


def measure(engine: Engine, *, n_tokens: int, n_rounds: int) -> None:
    """Prints one line per wire."""
    wires = bodies(n_tokens)
    with live_server(engine) as server, client(server, "paced") as asked:
        costs: dict[str, list[Cost]] = {name: [] for name in wires}
        for i in range(n_rounds + 1):
            for name, (path, body) in wires.items():
                cost = measured(asked, path, body, n_tokens)
                if i:  # the first round warms everything up
                    costs[name].append(cost)
    for name in wires:
        print(told(name, costs[name], costs[REFERENCE]))


def told(name: str, costs: Sequence[Cost], reference: Sequence[Cost]) -> str:
    us, cpu_us = median(cost.us for cost in costs), median(cost.cpu_us for cost in costs)
    pairs = list(zip(costs, reference, strict=True))
    ratio = median(cost.us / beside.us for cost, beside in pairs)
    cpu_ratio = median(cost.cpu_us / beside.cpu_us for cost, beside in pairs)
    return (
        f"{name:22} {us:7.1f} us a token, {ratio:5.3f} times; processor {cpu_us:7.1f} us, "
        f"{cpu_ratio:5.3f} times; {median(cost.n_bytes for cost in costs):5.0f} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    # One thread: the server and the client have the other core.
    engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate="off", n_threads=1)
    measure(engine, n_tokens=arguments.tokens, n_rounds=arguments.rounds)


if __name__ == "__main__":
    main()
