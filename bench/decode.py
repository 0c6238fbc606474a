"""Decode speed of one sequence, beside the bandwidth of the same machine in the same run.

A step reads every weight once, so tok/s times the bytes of the weights is a bandwidth; how near it
comes to what the memory can copy says how much is left to gain. For an otherwise idle machine:

    python -m bench.decode [MODEL] [--tokens 256] [--rounds 5]
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from engine import DEFAULT_MODEL, Engine, SamplingSettings

COPY_BYTES = 512 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, default=DEFAULT_MODEL)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    device = torch.device(args.device)
    dtype = args.dtype or ("bfloat16" if device.type == "cuda" else "float32")
    engine = Engine.load(args.model, device=args.device, dtype=dtype, n_threads=args.threads)
    weight_bytes = bytes_per_step(engine, getattr(torch, dtype).itemsize)
    prompt = prompt_ids(engine, args.prompt_tokens)
    print(
        f"{engine.model_id}: {engine.config.n_params:,} parameters, {dtype} on {device}, "
        f"{torch.get_num_threads()} threads, {weight_bytes / 1e6:.1f} MB of weights per token"
    )
    print("round   tok/s   weights GB/s   copy GB/s   share")
    rounds = []
    for number in range(1, args.rounds + 1):
        copy = copy_bandwidth(device) / 1e9
        rate = decode_rate(engine, prompt, n_tokens=args.tokens)
        rounds.append((rate, copy))
        moved = rate * weight_bytes / 1e9
        share = moved / copy
        print(f"{number:>5} {rate:>7.1f} {moved:>14.1f} {copy:>11.1f} {share:>7.0%}")
    rate = statistics.median(rate for rate, _ in rounds)
    copy = statistics.median(copy for _, copy in rounds)
    print(
        f"median {rate:.1f} tok/s = {rate * weight_bytes / 1e9:.1f} GB/s of weights; "
        f"the machine copies at {copy:.1f} GB/s (read plus written)"
    )


def bytes_per_step(engine: Engine, element_bytes: int) -> int:
    """Bytes of weights that a step reads: all but an embedding table that is not also the head."""
    config = engine.config
    table = 0 if config.tie_embeddings else config.vocab_size * config.dim
    return (config.n_params - table) * element_bytes


def prompt_ids(engine: Engine, n_tokens: int) -> list[int]:
    """`n_tokens` ids of ordinary text."""
    token_ids = engine.tokenizer.encode("Once upon a time there was a little boat. " * n_tokens)
    return token_ids[:n_tokens]


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second that a copy reads and writes, best of three; far larger than any cache."""
    source = torch.ones(COPY_BYTES // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = []
    for _ in range(3):
        synchronize(device)
        start = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return 2 * COPY_BYTES / min(seconds)


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


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
