"""How far estimates are from what follows: requests of many lengths, each estimated, then sent.

.venv/bin/python -m bench.estimates [--requests 50] [--model PATH]
Prints the median and the 90th percentile of the relative errors of the time to the first token, of
the time per token, and of the time of scores, on an idle machine, behind ten requests of each kind
that the server learns from.
"""

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

from engine import DEFAULT_MODEL, Engine
from tests.support.live_server import LiveServer, live_server

WARM_UP = 10
N_TOKENS = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    options = parser.parse_args()
    engine = Engine.load(options.model, device="cpu")
    draw = random.Random(1)
    first: list[float] = []
    each: list[float] = []
    scores: list[float] = []
    with live_server(engine) as server:
        for i in range(WARM_UP + options.requests):
            said, first_ms, each_ms = one(server, prompt(engine, draw))
            if i < WARM_UP:
                continue
            first.append(error(said["time_to_first_token_ms"], first_ms))
            each.append(error(said["time_per_token_ms"], each_ms))
        for i in range(WARM_UP + options.requests):
            said, all_ms = scored(server, prompt(engine, draw), continuations(engine, draw))
            if i >= WARM_UP:
                scores.append(error(said["time_ms"], all_ms))
    named = (("time to first token", first), ("time per token", each), ("time of scores", scores))
    for name, errors in named:
        errors.sort()
        print(
            f"{name}: median error {statistics.median(errors):.1%}, 90th percentile "
            f"{errors[int(0.9 * len(errors))]:.1%}, of {len(errors)} requests"
        )


def prompt(engine: Engine, draw: random.Random) -> list[int]:
    """Random ids of 8 to half the context; evenly over orders of magnitude."""
    n = int(8 * (engine.max_seq_len / 2 / 8) ** draw.random())
    return ids(engine, draw, n)


def continuations(engine: Engine, draw: random.Random) -> list[list[int]]:
    """One to eight of 1 to 24 random ids."""
    return [ids(engine, draw, draw.randint(1, 24)) for _ in range(draw.randint(1, 8))]


def ids(engine: Engine, draw: random.Random, n: int) -> list[int]:
    return [draw.randrange(300, engine.config.vocab_size - 100) for _ in range(n)]


def one(server: LiveServer, token_ids: list[int]) -> tuple[Any, float, float]:
    """The estimate, then the time to the first token in the engine and that of each later one."""
    body = {
        "prompt": token_ids, "max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 0.8,
        "seed": 1, "include": ["timings", "time"],
    }  # fmt: skip
    said = server.post("/v1/estimate", body).json
    answer = server.post("/v1/completions", body).json
    times = answer["choices"][0]["logprobs"]["time_ms"]
    in_engine = times[0] - answer["timings"]["queued_ms"]
    return said, in_engine, (times[-1] - times[0]) / (len(times) - 1)


def scored(server: LiveServer, token_ids: list[int], given: list[list[int]]) -> tuple[Any, float]:
    """The estimate, then the time in the engine to the last score."""
    body = {"prompt": token_ids, "continuations": given, "include": ["timings"]}
    said = server.post("/v1/estimate", body).json
    return said, server.post("/v1/score", body).json["timings"]["prompt_ms"]


def error(said: float, was: float) -> float:
    return abs(said - was) / was


if __name__ == "__main__":
    main()
