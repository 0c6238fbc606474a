"""All figures of one engine in one run: the order and number of the measurements.

Owns rounds, medians and their names. `speed.py` owns the single measurement.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ..cache.kv import KVCache
from ..cache.prefix import PrefixCache
from ..device.formats import kv_bytes_per_token
from ..engine import Engine
from ..model.weights import step_bytes
from ..stream.generator import StreamingGenerator
from .bandwidth import Reader
from .speed import decode_rate, pass_rate, prefill_rate, prompt_ids, time_to_first_token, warm_up

PARTS = ("decode", "depth", "prefill", "ttft")
DEPTH = 2048
_SHORT_PROMPT = 16
_TTFT_PROMPT = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. A figure is the median of its rounds."""

    parts: frozenset[str] = frozenset(PARTS)
    rounds: int = 5
    n_tokens: int = 256  # tokens of a decoded stream, at least 2
    stream_limit_s: float = 1.0  # a slow model's stream ends after this
    part_limit_s: float = 20.0  # no further round begins after this

    def each_round(self) -> Iterator[int]:
        start = time.perf_counter()
        for number in range(self.rounds):
            if number == 0 or time.perf_counter() - start < self.part_limit_s:
                yield number


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """Rates are tokens per second. None if not asked for, longer than the context, or without a
    reader.
    """

    threads: int
    format: str
    ops: str
    n_params: int
    bytes_per_token: int
    """Weights that a step reads; keys and values come on top."""
    kv_bytes_2048: int
    """Keys and values that a step reads at a depth of 2048."""
    read_bandwidth_gbs: float | None = None
    """Main memory, measured before and after each round of decode."""
    read_bandwidth_gbs_same_size: float | None = None
    """As many bytes as a step reads, again and again: includes what the caches hold of them."""
    decode_tps: float | None = None
    pass_tps: float | None = None
    """Without sampler and text."""
    bandwidth_fraction: float | None = None
    """Weights that decode reads per second, as a fraction of read_bandwidth_gbs."""
    bandwidth_fraction_with_kv: float | None = None
    """The same with the keys and values of the stream: of its middle, on average."""
    decode_tps_2048: float | None = None
    added_ms_2048: float | None = None
    """Additional time per token at this depth."""
    prefill_tps_512: float | None = None
    prefill_tps_2048: float | None = None
    ttft_cold_ms: float | None = None
    """Time to first token, here and below, with a prompt of 1024 tokens."""
    ttft_cached_ms: float | None = None


def measure(engine: Engine, reader: Reader | None, plan: Plan) -> EngineFigures:
    """Measures the figures that `plan` asks for; bandwidth only with a reader."""
    config, ops = engine.config, engine.model.ops
    n_bytes = step_bytes(config, engine.model.formats, ops.matrix_bytes)
    # A separate cache, so that a deep prompt stays cached while short streams run.
    cache = KVCache(config, ops, max_seq_len=engine.max_seq_len)
    warm_up(engine.model, cache)
    time_to_first_token(engine.generator, prompt_ids(config.vocab_size, _SHORT_PROMPT))
    figures: dict[str, float] = {}
    if plan.parts & {"decode", "depth"}:
        figures |= _decode(engine, cache, reader, plan, n_bytes)
    if "prefill" in plan.parts:
        figures |= _prefill(engine, cache, plan)
    if "ttft" in plan.parts and engine.max_seq_len > _TTFT_PROMPT:
        figures |= _first_token(engine, plan)
    return EngineFigures(
        threads=ops.n_threads,
        format=ops.format,
        ops=ops.name,
        n_params=config.n_params,
        bytes_per_token=n_bytes,
        kv_bytes_2048=DEPTH * kv_bytes_per_token(config, ops.kv_format),
        **figures,
    )


def _decode(
    engine: Engine, cache: KVCache, reader: Reader | None, plan: Plan, n_bytes: int
) -> dict[str, float]:
    """Short streams, bare passes and deep streams take turns, with bandwidth measured between."""
    length, vocab_size = engine.max_seq_len, engine.config.vocab_size
    deep_generator = StreamingGenerator(
        engine.model, PrefixCache(cache), engine.tokenizer, eos_token_ids=engine.eos_token_ids
    )
    n_tokens = min(plan.n_tokens, length - _SHORT_PROMPT)
    bare_cache = KVCache(engine.config, engine.model.ops, max_seq_len=n_tokens)
    short_prompt = prompt_ids(vocab_size, _SHORT_PROMPT)
    deep_prompt = prompt_ids(vocab_size, DEPTH)
    has_depth = "depth" in plan.parts and DEPTH + n_tokens <= length
    limit_s = plan.stream_limit_s
    if has_depth:
        deep_generator.begin_stream_ex(deep_prompt)
    memory = [reader.bandwidth()] if reader else []
    same_size, rates, passes, deep = [], [], [], []
    kv_bytes: list[float] = []
    for _ in plan.each_round():
        if reader:
            same_size.append(reader.bandwidth(n_bytes))
        rates.append(
            decode_rate(engine.generator, short_prompt, n_tokens=n_tokens, limit_s=limit_s)
        )
        depth = _SHORT_PROMPT + engine.generator.n_completion_tokens / 2
        kv_bytes.append(depth * kv_bytes_per_token(engine.config, engine.model.ops.kv_format))
        passes.append(pass_rate(engine.model, bare_cache, n_tokens=n_tokens, limit_s=limit_s))
        if has_depth:
            deep.append(
                decode_rate(deep_generator, deep_prompt, n_tokens=n_tokens, limit_s=limit_s)
            )
        if reader:
            memory.append(reader.bandwidth())
    figures = {"decode_tps": median(rates), "pass_tps": median(passes)}
    if reader:
        nearby = [(before + after) / 2 for before, after in pairwise(memory)]
        figures["read_bandwidth_gbs"] = median(memory) / 1e9
        figures["read_bandwidth_gbs_same_size"] = median(same_size) / 1e9
        figures["bandwidth_fraction"] = median(
            rate * n_bytes / each for rate, each in zip(rates, nearby, strict=True)
        )
        figures["bandwidth_fraction_with_kv"] = median(
            rate * (n_bytes + kv) / each
            for rate, kv, each in zip(rates, kv_bytes, nearby, strict=True)
        )
    if has_depth:
        figures["decode_tps_2048"] = median(deep)
        figures["added_ms_2048"] = 1e3 * median(
            1 / below - 1 / above for below, above in zip(deep, rates, strict=True)
        )
    return figures


def _prefill(engine: Engine, cache: KVCache, plan: Plan) -> dict[str, float]:
    def rate(n_tokens: int) -> float:
        return median(
            prefill_rate(engine.model, cache, n_tokens=n_tokens) for _ in plan.each_round()
        )

    lengths = [n_tokens for n_tokens in (512, 2048) if n_tokens <= engine.max_seq_len]
    return {f"prefill_tps_{n_tokens}": rate(n_tokens) for n_tokens in lengths}


def _first_token(engine: Engine, plan: Plan) -> dict[str, float]:
    cold, cached = [], []
    for number in plan.each_round():
        prompt = prompt_ids(engine.config.vocab_size, _TTFT_PROMPT, seed=1 + number)
        cold.append(time_to_first_token(engine.generator, prompt))
        cached.append(time_to_first_token(engine.generator, prompt))
    return {"ttft_cold_ms": 1e3 * median(cold), "ttft_cached_ms": 1e3 * median(cached)}
