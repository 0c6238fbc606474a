"""Rates of one engine: decode, prefill, time to first token. Owns what exactly is timed."""

import time

import numpy as np

from ..cache.kv import KVCache
from ..model.model import Model
from ..sampling.settings import SamplingSettings
from ..stream.generator import StreamingGenerator


def prompt_ids(vocab_size: int, n_tokens: int, *, seed: int = 0) -> list[int]:
    """`n_tokens` random ids. Another seed begins with another id, so no prefix is shared."""
    token_ids: list[int] = np.random.default_rng(seed).integers(0, vocab_size, n_tokens).tolist()
    return [seed % vocab_size, *token_ids[1:]]


def warm_up(model: Model, cache: KVCache) -> None:
    """Prefills one untimed chunk and clears the cache: the first pass has to touch its memory."""
    n_tokens = min(model.chunk_size, cache.max_seq_len)
    model.prefill(prompt_ids(model.config.vocab_size, n_tokens), cache)
    model.ops.wait()
    cache.clear()


def decode_rate(
    generator: StreamingGenerator, prompt: list[int], *, n_tokens: int, limit_s: float
) -> float:
    """Tokens per second of a greedy stream, with sampler and text, without prefill and the first
    token. The stream has `n_tokens`, at least 2, or ends after `limit_s`.
    """
    _begin(generator, prompt, n_tokens=n_tokens)
    generator.stream_ex()
    start = time.perf_counter()
    while True:
        ended = generator.stream_ex().eos
        seconds = time.perf_counter() - start
        if ended or seconds > limit_s:
            return (generator.n_completion_tokens - 1) / seconds


def pass_rate(model: Model, cache: KVCache, *, n_tokens: int, limit_s: float) -> float:
    """Passes of one row per second, starting with an empty `cache`. Nothing is sampled."""
    cache.clear()
    first, *others = prompt_ids(model.config.vocab_size, n_tokens)
    model.decode([first], cache)
    model.ops.wait()
    start = time.perf_counter()
    for token_id in others:
        model.decode([token_id], cache)
        if time.perf_counter() - start > limit_s:
            break
    model.ops.wait()
    return (cache.length - 1) / (time.perf_counter() - start)


def prefill_rate(model: Model, cache: KVCache, *, n_tokens: int) -> float:
    """Prompt tokens per second, up to the logits after the last one."""
    cache.clear()
    token_ids = prompt_ids(model.config.vocab_size, n_tokens)
    start = time.perf_counter()
    model.prefill(token_ids[:-1], cache, next_id=token_ids[-1])
    model.decode(token_ids[-1:], cache)
    model.ops.wait()
    return n_tokens / (time.perf_counter() - start)


def time_to_first_token(generator: StreamingGenerator, prompt: list[int]) -> float:
    """Seconds from the prompt to its first token. Reuses what the cache has of the prompt."""
    start = time.perf_counter()
    _begin(generator, prompt, n_tokens=1)
    generator.stream_ex()
    return time.perf_counter() - start


def _begin(generator: StreamingGenerator, prompt: list[int], *, n_tokens: int) -> None:
    generator.begin_stream_ex(
        prompt, SamplingSettings(temperature=0.0), max_new_tokens=n_tokens, ignore_eos=True
    )
