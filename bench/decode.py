"""Decode speed of one sequence, beside the bandwidth of the same machine in the same run.

A step reads every weight once, so tok/s times the bytes of the weights is a bandwidth; how near it
comes to what the memory can copy says how much is left to gain. For an otherwise idle machine:

    python -m bench.decode [MODEL] [--tokens 256] [--rounds 5]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from engine import DEFAULT_MODEL, Engine, SamplingSettings
from engine.layout import DTYPES, QUANTIZED, matrix_bytes, table_format
from engine.ops import Ops
from engine.threads import thread_count
from engine.weights import weight_bytes

COPY_BYTES = 512 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", choices=["auto", *DTYPES], default="auto")
    parser.add_argument("--quantize", choices=["none", *QUANTIZED], default="none")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    n_threads = thread_count(args.threads)
    engine = Engine.load(
        args.model,
        device=args.device,
        dtype=args.dtype,
        quantize=args.quantize,
        n_threads=n_threads,
    )
    ops = ops_of(engine)
    step_bytes = bytes_per_step(engine, ops.format)
    prompt = prompt_ids(engine, args.prompt_tokens)
    print(
        f"{engine.model_id}: {engine.config.n_params:,} parameters, {ops.format}, {ops.name}, "
        f"{n_threads} CPU threads, {step_bytes / 1e6:.1f} MB of weights per token"
    )
    print("round   tok/s   weights GB/s   copy GB/s   share")
    rounds = []
    for number in range(1, args.rounds + 1):
        copy = copy_bandwidth(ops, n_threads) / 1e9
        rate = decode_rate(engine, prompt, n_tokens=args.tokens)
        rounds.append((rate, copy))
        moved = rate * step_bytes / 1e9
        share = moved / copy
        print(f"{number:>5} {rate:>7.1f} {moved:>14.1f} {copy:>11.1f} {share:>7.0%}")
    rate = statistics.median(rate for rate, _ in rounds)
    copy = statistics.median(copy for _, copy in rounds)
    print(
        f"median {rate:.1f} tok/s = {rate * step_bytes / 1e9:.1f} GB/s of weights; "
        f"the machine copies at {copy:.1f} GB/s (read plus written)"
    )


def ops_of(engine: Engine) -> Ops:
    """What computes. The engine keeps it to itself; a benchmark has to name it."""
    return engine.generator._model.ops


def bytes_per_step(engine: Engine, format_: str) -> int:
    """Bytes of weights that a step reads: all but an embedding table that is not also the head."""
    config = engine.config
    table = matrix_bytes(table_format(format_), config.vocab_size, config.dim)
    return weight_bytes(config, format_) - (0 if config.tie_embeddings else table)


def prompt_ids(engine: Engine, n_tokens: int) -> list[int]:
    """`n_tokens` ids of ordinary text."""
    token_ids = engine.tokenizer.encode("Once upon a time there was a little boat. " * n_tokens)
    return token_ids[:n_tokens]


def copy_bandwidth(ops: Ops, n_threads: int) -> float:
    """Bytes per second that a copy reads and writes, best of three; far larger than any cache."""
    if " cuda" in ops.name:
        return best_of_three(cuda_copy(ops))
    with ThreadPoolExecutor(n_threads) as threads:
        return best_of_three(host_copy(threads, n_threads))


def best_of_three(copy: Callable[[], object]) -> float:
    copy()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - start)
    return 2 * COPY_BYTES / min(seconds)


def host_copy(threads: ThreadPoolExecutor, n_threads: int) -> Callable[[], object]:
    """A copy in main memory, by as many threads as decode; numpy copies without the lock."""
    source = np.ones(COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    parts = np.array_split(target, n_threads), np.array_split(source, n_threads)
    return lambda: list(threads.map(np.copyto, *parts))


def cuda_copy(ops: Ops) -> Callable[[], object]:
    import torch

    source = ops.zeros((COPY_BYTES // 4,), "float32")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize(source.device)

    return copy


def decode_rate(engine: Engine, prompt: list[int], *, n_tokens: int) -> float:
    """Tokens per second of one greedy stream, prefill and first token not counted."""
    generator = engine.generator
    generator.begin_stream_ex(
        prompt, SamplingSettings(temperature=0.0), max_new_tokens=n_tokens, ignore_eos=True
    )
    generator.stream_ex()
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        pass
    return (generator.n_completion_tokens - 1) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
