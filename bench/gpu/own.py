"""Soliton's figures on one card: the time per token as a caller sees it, and where it goes.

Owns what exactly is timed of one model, in one format. Each function gives `put` its figures as
they come.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine import SamplingSettings, StreamingGenerator
from engine.benchmark import profile_step
from engine.benchmark.speed import prefill_rate, prompt_ids
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.checkpoint.config import ModelConfig
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors, expected_shapes
from engine.device.formats import kv_bytes_per_token
from engine.device.ops import Ops
from engine.draft.opening import measure_costs, open_speculator
from engine.draft.speculator import Speculator
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model.weights import Weights

from . import knobs
from .goals import ROWS
from .limits import Limits
from .place import AMOUNT, DEVICE
from .timing import seconds_each, synchronize
from .weights import prompt_flops, step_bytes

_SHORT = 16  # tokens of the prompt of a stream
GREEDY = SamplingSettings(temperature=0.0)
# Random weights make every token about equally likely, so nothing repeats that could be drafted.
PLAIN = SamplingSettings(temperature=1.0)
SAMPLERS = {
    "sampled": SamplingSettings(temperature=0.8, top_p=0.95, top_k=40, min_p=0.02),
    "penalties": SamplingSettings(temperature=0.8, repetition_penalty=1.1),
}

Put = Callable[[dict[str, Any]], None]


class Letters:
    """A vocabulary in which every token is one letter."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([97 + token_id % 26])

    def is_special(self, token_id: int) -> bool:
        return False

    def is_control(self, token_id: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Bench:
    """A model with a cache for a short context, and what its figures are compared with."""

    config: ModelConfig
    ops: Ops
    weights: Weights
    limits: Limits
    model: Model
    cache: KVCache

    @classmethod
    def of(cls, config: ModelConfig, ops: Ops, weights: Weights, limits: Limits) -> "Bench":
        length = max(*AMOUNT.prompts, _SHORT + AMOUNT.tokens) + max(ROWS)
        model = Model(weights, config, ops, max_seq_len=length)
        return cls(config, ops, weights, limits, model, KVCache(config, ops, max_seq_len=length))

    def share(self, seconds: float, *, extra_bytes: int = 0) -> float:
        """The share of the read bandwidth that a pass in `seconds` uses."""
        moved = step_bytes(self.config, self.ops) + extra_bytes
        return moved / seconds / self.limits.read_bytes

    def fill(self) -> None:
        """As many tokens as a stream holds on average."""
        self.cache.clear()
        middle = _SHORT + AMOUNT.tokens // 2
        self.model.prefill(prompt_ids(self.config.vocab_size, middle), self.cache)

    def stream_seconds(
        self,
        settings: SamplingSettings,
        *,
        n_top: int = 0,
        speculator: Speculator | None = None,
    ) -> float:
        """Seconds per token, the median of some streams. Each has another seed, or else drafts
        would be taken from the stream before.
        """
        generator = StreamingGenerator(
            self.model, PrefixCache(self.cache), Letters(), eos_token_ids=(), speculator=speculator
        )
        prompt = prompt_ids(self.config.vocab_size, _SHORT)
        return median(
            stream_seconds(
                generator, prompt, replace(settings, seed=seed), n_tokens=AMOUNT.tokens, n_top=n_top
            )
            for seed in range(AMOUNT.rounds)
        )


def measure_decode(bench: Bench, put: Put) -> None:
    """What a token takes: as a stream, as a graph alone, and without overlapping launches; and as
    `soliton serve` streams it, with n-gram drafts, of which there are none here.
    """
    stream = bench.stream_seconds(GREEDY)
    put({"gb": step_bytes(bench.config, bench.ops) / 1e9, "stream_ms": 1e3 * stream,
         "stream_share": bench.share(stream)})  # fmt: skip
    bench.fill()
    graph = pass_seconds(bench.model, bench.cache, 1)
    put({"graph_ms": 1e3 * graph, "graph_share": bench.share(graph),
         "host_us": 1e6 * (stream - graph)})  # fmt: skip
    speculator = open_speculator("ngram", None, bench.model, bench.cache)
    assert speculator is not None
    measure_costs(speculator, bench.model, bench.cache)
    served = bench.stream_seconds(PLAIN, speculator=speculator)
    plain = bench.stream_seconds(PLAIN)
    put({"served_ms": 1e3 * served, "drafts_added_us": 1e6 * (served - plain)})
    if "overlap" in knobs.current():
        bench.fill()
        with knobs.turned(overlap=False):
            apart = pass_seconds(bench.model, bench.cache, 1)
        put({"no_overlap_ms": 1e3 * apart, "overlap_gains_share": apart / graph - 1})


def measure_rest(bench: Bench, put: Put) -> None:
    """Passes of several rows, the sampler, prompts, and the time of each op."""
    bench.fill()
    rows = {n: pass_seconds(bench.model, bench.cache, n) for n in (1, *ROWS)}
    put({"rows_ms": {str(n): 1e3 * seconds for n, seconds in rows.items()}})
    greedy = bench.stream_seconds(GREEDY)
    for name, settings in SAMPLERS.items():
        put({f"{name}_added_us": 1e6 * (bench.stream_seconds(settings, n_top=5) - greedy)})
    for n_tokens in AMOUNT.prompts:
        rate = median(
            prefill_rate(bench.model, bench.cache, n_tokens=n_tokens)
            for _ in range(AMOUNT.rounds + 1)
        )
        flops = prompt_flops(bench.config, n_tokens) * rate / n_tokens
        share = flops / bench.limits.product_flops
        put({f"prefill_{n_tokens}_tps": rate, f"prefill_{n_tokens}_share": share})
    profile = [
        {"name": op.name, "count": op.count, "us": op.us, "gbs": op.n_bytes / op.us / 1e3}
        for op in profile_step(bench.model, steps=min(10, AMOUNT.tokens))
    ]
    put({"profile": profile})


def measure_deep(bench: Bench, ops: Ops, put: Put) -> None:
    """The same weights, far into a sequence: `ops` holds keys and values in eight bits."""
    start = time.perf_counter()
    model, cache = deep(bench, ops)
    ops.wait()
    filled = time.perf_counter() - start
    seconds = pass_seconds(model, cache, 1)
    kv_bytes = kv_bytes_per_token(bench.config, ops.kv_format) * AMOUNT.depth
    put(
        {
            "deep_ms": 1e3 * seconds,
            "deep_kv_gb": kv_bytes / 1e9,
            "deep_share": bench.share(seconds, extra_bytes=kv_bytes),
            "deep_prefill_tps": AMOUNT.depth / filled,
        }
    )


def deep(bench: Bench, ops: Ops) -> tuple[Model, KVCache]:
    """The model of `bench` with a long cache that has room for one more pass."""
    length = AMOUNT.depth + max(ROWS)
    model = Model(bench.weights, bench.config, ops, max_seq_len=length)
    cache = KVCache(bench.config, ops, max_seq_len=length)
    model.prefill(prompt_ids(bench.config.vocab_size, AMOUNT.depth - 1), cache)
    return model, cache


def measure_knobs(bench: Bench, deep_ops: Ops | None, put: Put) -> None:
    """A pass with every setting of every knob, the others at their defaults; with `deep_ops` also
    far into a sequence.
    """
    bench.fill()
    places = {"": (bench.model, bench.cache)}
    if deep_ops is not None:
        places["deep "] = deep(bench, deep_ops)
    for label, setting in knobs.trials():
        with knobs.turned(**setting):
            for place, (model, cache) in places.items():
                put({f"{place}{label}": 1e3 * pass_seconds(model, cache, 1)})


def run_profiled(config: ModelConfig, ops: Ops, weights: Weights) -> None:
    """A pass far into a sequence and a token drawn from it, between cudaProfilerStart and
    cudaProfilerStop: for a profiler. The pass is the first, which is launched op by op.
    """
    model = Model(weights, config, ops, max_seq_len=AMOUNT.depth)
    cache = KVCache(config, ops, max_seq_len=AMOUNT.depth)
    generator = StreamingGenerator(model, PrefixCache(cache), Letters(), eos_token_ids=())
    prompt = prompt_ids(config.vocab_size, AMOUNT.depth - 2)
    generator.begin_stream_ex(prompt, PLAIN, max_new_tokens=1, ignore_eos=True)
    if torch.cuda.is_available():
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    generator.stream_ex()
    ops.wait()
    if torch.cuda.is_available():
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def stream_seconds(
    generator: StreamingGenerator,
    prompt: Sequence[int],
    settings: SamplingSettings,
    *,
    n_tokens: int,
    n_top: int = 0,
) -> float:
    """Seconds per token as the caller of a stream sees it: pass, sampler, text, record. The first
    tokens, in which graphs are recorded, do not count.
    """
    n_first = n_tokens // 4
    generator.begin_stream_ex(
        prompt,
        settings,
        max_new_tokens=n_tokens,
        ignore_eos=True,
        return_probabilities=n_top > 0,
        return_top_tokens=n_top,
    )
    while generator.n_completion_tokens < n_first:
        generator.stream_ex()
    n_timed = n_tokens - generator.n_completion_tokens
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        pass
    return (time.perf_counter() - start) / n_timed


def pass_seconds(model: Model, cache: KVCache, n_rows: int) -> float:
    """A pass of `n_rows` at the end of `cache`, launched repeatedly without reading results."""
    length, token_ids = cache.length, prompt_ids(model.config.vocab_size, n_rows, seed=1)

    def run() -> None:
        model.decode(token_ids, cache)
        cache.rollback(length)

    return seconds_each(run, calls=AMOUNT.calls, rounds=AMOUNT.rounds)


def measure_loading(config: ModelConfig, ops: Ops, directory: Path) -> dict[str, float]:
    """Bytes per second from a freshly written safetensors file into memory of `ops`."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: torch.randn(shape, dtype=torch.bfloat16, device=DEVICE).cpu()
        for name, shape in expected_shapes(config).items()
    }
    n_bytes = sum(tensor.nbytes for tensor in tensors.values())
    save_file(tensors, directory / "model.safetensors")
    del tensors
    stored = check_tensors(read_checkpoint(directory), config)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        weights = load_weights(stored, config, ops)
        ops.wait()
        synchronize()
        seconds.append(time.perf_counter() - start)
        del weights
        release()
    return {"gb": n_bytes / 1e9, "first_gbs": n_bytes / seconds[0] / 1e9,
            "gbs": n_bytes / median(seconds) / 1e9}  # fmt: skip


def release() -> None:
    """Returns unused memory to the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
