"""Soliton itself, as its public API streams: pass, sampler and text."""

import time
from pathlib import Path

from engine import Engine, SamplingSettings


class Soliton:
    def __init__(self, model: Path, format_: str, *, n_threads: int) -> None:
        self._generator = Engine.load(
            model, device="cpu", quantize=format_, n_threads=n_threads, require_native=True
        ).generator

    def prefill(self, prompt: list[int]) -> float:
        self._forget(prompt)
        start = time.perf_counter()
        self._begin(prompt, 1)
        self._generator.stream_ex()
        return time.perf_counter() - start

    def decode(self, prompt: list[int], n_tokens: int) -> float:
        self._begin(prompt, n_tokens + 1)
        self._generator.stream_ex()
        start = time.perf_counter()
        while not self._generator.stream_ex().eos:
            pass
        return (time.perf_counter() - start) / n_tokens

    def greedy(self, prompt: list[int], n_tokens: int) -> list[int]:
        self._begin(prompt, n_tokens)
        token_ids = []
        while True:
            result = self._generator.stream_ex()
            token_ids += [token.token_id for token in result.tokens]
            if result.eos:
                return token_ids

    def _forget(self, prompt: list[int]) -> None:
        """Runs a prompt with another first token, so that the next one can reuse nothing."""
        self._begin([prompt[0] ^ 1], 1)

    def _begin(self, prompt: list[int], n_tokens: int) -> None:
        self._generator.begin_stream_ex(
            prompt, SamplingSettings(temperature=0.0), max_new_tokens=n_tokens, ignore_eos=True
        )
