"""What it takes to leave a stream, take it up again, branch and peek, in the engine and over HTTP.

`python -m bench.streams [--model PATH]`, on an otherwise idle machine. Every figure is a median,
next to that of a plain step of the same stream. `--kept 1000` fills a server with so many streams,
whose keys and values find no room, so that what it holds is the streams alone.
"""

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from engine import (
    DEFAULT_MODEL,
    Engine,
    SamplingSettings,
    Snapshot,
    Stream,
    StreamingGenerator,
    StreamOptions,
    snapshot_to_bytes,
)

from . import streams_http

N_PROMPT = 100
N_PLACES = 10
N_PEEKS = 9


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def first_token(generator: StreamingGenerator, snapshot: Snapshot) -> float:
    return timed(lambda: generator.restore(snapshot).step())


def continued(generator: StreamingGenerator, snapshot: Snapshot, n_tokens: int) -> float:
    """A greedy continuation of `n_tokens` tokens, without its beginning."""
    options = StreamOptions(max_new_tokens=snapshot.n_tokens + n_tokens, ignore_eos=True)
    greedy = snapshot.changed(settings=SamplingSettings(temperature=0.0), options=options)
    stream = generator.restore(greedy)
    return timed(lambda: to_the_end(stream))


def to_the_end(stream: Stream) -> None:
    while not stream.ended:
        stream.step()


def measure(engine: Engine, n_tokens: int) -> None:
    generator = engine.generator
    prompt = [50 + (7 * i + 3) % 1000 for i in range(N_PROMPT)]
    options = StreamOptions(max_new_tokens=n_tokens, ignore_eos=True, return_top_tokens=5)
    stream = generator.begin(prompt, SamplingSettings(seed=1), options)
    steps = [timed(stream.step) for _ in range(n_tokens)]
    step, kept = median(steps), stream.snapshot()
    print(f"step {step:.2f} ms")
    places = range(n_tokens - 5, n_tokens // 2, -max(n_tokens // (2 * N_PLACES), 1))

    def tell(name: str, times: list[float]) -> None:
        first = median(times)
        print(f"{name}: {first:.2f} ms to the first token, a step and {first - step:.2f}")

    branches = [kept.at(n).forced(77) for n in places]
    tell("branch of the last stream", [first_token(generator, each) for each in branches])
    stored = []
    for each in branches:
        generator.begin([9] * 80)
        stored.append(first_token(generator, each))
    tell("branch of a stored stream", stored)
    resumed = []
    for n in places:
        stream = generator.restore(kept.at(n))
        stream.step()
        resumed.append(first_token(generator, stream.snapshot()))
    tell("pause and resume", resumed)

    middle = kept.at(n_tokens // 2)
    peeks, continuations = [], []
    for _ in range(N_PEEKS):
        continuations.append(continued(generator, middle, 12))
        stream = generator.restore(middle)
        stream.step()
        peeks.append(timed(functools.partial(stream.peek, top=5, n_tokens=12)))
    peek, short = median(peeks), median(continuations)
    print(f"peek of 5 x 12 tokens {peek:.1f} ms; 12 tokens {short:.1f}: {peek / short:.2f} times")
    print(f"{n_tokens} tokens: snapshot {len(snapshot_to_bytes(kept))} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--tokens", type=int, default=500)
    parser.add_argument("--kept", type=int, default=0)
    parser.add_argument("--quantize", default="none")
    arguments = parser.parse_args()
    load = functools.partial(
        Engine.load, arguments.model, device="cpu", quantize=arguments.quantize
    )
    if arguments.kept:
        streams_http.kept(load(prefix_bytes=2**20), arguments.kept)
        return
    engine = load(prefix_bytes=2**30)
    measure(engine, arguments.tokens)
    streams_http.measure(engine, n_tokens=arguments.tokens)


if __name__ == "__main__":
    main()
