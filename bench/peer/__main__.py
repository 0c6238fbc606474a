"""One measurement of one program, in its own process:

    python -m bench.peer PEER FORMAT MODEL WHAT THREADS

WHAT is `prepare`, `greedy`, `bandwidth` (of the memory, read by Soliton) or the name of a measure.
Prints one line of JSON: the path of the prepared model, token ids, bytes or tokens per second.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.peer.protocol import MEASURES, SOLITON, Peer

# Repeats of short measurements; the first one of several is a warm-up.
_SECONDS = 1.5
_GREEDY_TOKENS = 16
_READ_BYTES = 10**9


def main() -> None:
    # Packages are imported where needed: each takes seconds, or is not installed.
    peer_name, format_, model, what, n_threads = sys.argv[1:]
    if what == "prepare":
        print(json.dumps(str(_prepare(peer_name, Path(model), format_))))
        return
    if what == "bandwidth":
        print(json.dumps(_read_bandwidth(Path(model), int(n_threads))))
        return
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: int(n_threads)])
    prompt = _prompt(2048)
    peer = _opened(peer_name, _prepare(peer_name, Path(model), format_), format_, int(n_threads))
    if what == "greedy":
        print(json.dumps([int(each) for each in peer.greedy(prompt[:16], _GREEDY_TOKENS)]))
        return
    measure = next(each for each in MEASURES if each.name == what)
    prompt = prompt[: measure.prompt_tokens]
    if measure.n_tokens:
        rate = 1 / _median(lambda: peer.decode(prompt, measure.n_tokens))
    else:
        rate = len(prompt) / _median(lambda: peer.prefill(prompt))
    print(json.dumps(rate))


def _read_bandwidth(model: Path, n_threads: int) -> float:
    """Bytes per second that `n_threads` threads read from main memory."""
    from engine import Engine
    from engine.benchmark import open_reader

    engine = Engine.load(model, device="cpu", n_threads=n_threads, require_native=True)
    reader = open_reader(engine.model.ops, _READ_BYTES)
    if reader is None:
        sys.exit("only the native ops read memory")
    return reader.bandwidth()


def _prompt(n_tokens: int) -> list[int]:
    """Random ids that are not control tokens in any of the vocabularies."""
    ids: list[int] = np.random.default_rng(1).integers(300, 4_096, n_tokens).tolist()
    return ids


def _median(seconds: Callable[[], float]) -> float:
    start = time.perf_counter()
    samples = [seconds()]
    while time.perf_counter() - start < _SECONDS:
        samples.append(seconds())
    return statistics.median(samples[1:] or samples)


def _prepare(name: str, model: Path, format_: str) -> Path:
    """The model in the program's format, converted if necessary."""
    match name:
        case "llama.cpp" | "openvino":
            from bench.peer import llama_cpp

            return llama_cpp.prepare(model, format_)
        case "onnxruntime":
            from bench.peer import onnxruntime

            return onnxruntime.prepare(model, format_)
    return model


def _opened(name: str, model: Path, format_: str, n_threads: int) -> Peer:
    match name:
        case "llama.cpp":
            from bench.peer.llama_cpp import LlamaCpp

            return LlamaCpp(model, n_threads=n_threads)
        case "llama-bench":
            from bench.peer.llama_bench import LlamaBench

            return LlamaBench(model, n_threads=n_threads)
        case "openvino":
            from bench.peer.openvino import OpenVino

            return OpenVino(model, n_threads=n_threads)
        case "onnxruntime":
            from bench.peer.onnxruntime import OnnxRuntime

            return OnnxRuntime(model, n_threads=n_threads)
        case _ if name == SOLITON:
            from bench.peer.soliton import Soliton

            return Soliton(model, format_, n_threads=n_threads)
    sys.exit(f"there is no program {name!r} here")


if __name__ == "__main__":
    main()
