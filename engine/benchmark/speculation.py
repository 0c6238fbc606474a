"""The speed-up of speculative decoding on a copied text, on a random one, and on the model's own.

Owns what exactly is timed. The first two texts are fixed: a hook replaces each sampled token, so
that passes, sampler and drafts have their real costs, whatever the model has learnt. Plain and
speculative streams take turns.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from statistics import median

from ..engine import Engine
from ..sampling.settings import SamplingSettings
from .speed import prompt_ids

_EDIT_EVERY = 40  # tokens of the copied text between two changes
_SECONDS_PER_ROUND = 1.0
_OPENING = "Once upon a time"

_numbers = count()

GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationFigures:
    """Rates are tokens per second; None means not measured."""

    copy_plain_tps: float | None = None
    copy_tps: float | None = None
    copy_speedup: float | None = None
    """On a text that repeats the prompt with one token in forty changed; n-gram drafts."""
    undraftable_speedup: float | None = None
    """On random tokens; n-gram drafts. Below 1 is the cost of useless drafts."""
    draft_model_tokens_per_pass: float | None = None
    draft_model_speedup: float | None = None
    """On the model's own greedy text; drafts from n-grams, then from its draft model."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A timed stream."""

    n_tokens: int
    n_passes: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.n_tokens / self.seconds


def measure_ngrams(engine: Engine, *, rounds: int, n_tokens: int) -> dict[str, float]:
    """For an engine loaded with speculate="ngram"; streams of `n_tokens`."""
    vocab_size = engine.config.vocab_size
    plain, copied, undraftable = [], [], []
    for number in _each_round(rounds):
        text = prompt_ids(vocab_size, n_tokens, seed=number)
        edited = list(text)
        for place in range(_EDIT_EVERY - 1, n_tokens, _EDIT_EVERY):
            edited[place] = (edited[place] + 1) % vocab_size
        other = prompt_ids(vocab_size, n_tokens, seed=1_000_000 + number)
        without, speculating = _both_ways(partial(_given, engine, text, edited), number)
        plain.append(without.rate)
        copied.append(speculating.rate)
        without, speculating = _both_ways(partial(_given, engine, text, other), number)
        undraftable.append(speculating.rate / without.rate)
    return {
        "copy_plain_tps": median(plain),
        "copy_tps": median(copied),
        "copy_speedup": median(b / a for a, b in zip(plain, copied, strict=True)),
        "undraftable_speedup": median(undraftable),
    }


def measure_draft_model(engine: Engine, *, rounds: int, n_tokens: int) -> dict[str, float]:
    """For an engine loaded with speculate="draft"."""
    prompt = engine.tokenizer.encode(_OPENING)
    speedups, per_pass = [], []
    for number in _each_round(rounds):
        without, speculating = _both_ways(partial(_own, engine, prompt, n_tokens), number)
        speedups.append(speculating.rate / without.rate)
        per_pass.append(speculating.n_tokens / speculating.n_passes)
    return {
        "draft_model_tokens_per_pass": median(per_pass),
        "draft_model_speedup": median(speedups),
    }


def _each_round(rounds: int) -> Iterator[int]:
    """`rounds`, and more for a fast model, whose short streams vary more."""
    start = time.perf_counter()
    return takewhile(
        lambda number: number < rounds or time.perf_counter() - start < rounds * _SECONDS_PER_ROUND,
        count(),
    )


def _both_ways(run: Callable[[bool], _Run], number: int) -> tuple[_Run, _Run]:
    """The stream without and with drafts, one right after the other; the order alternates."""
    if number % 2:
        speculating = run(True)
        return run(False), speculating
    return run(False), run(True)


def _given(engine: Engine, prompt: list[int], text: list[int], speculate: bool) -> _Run:
    """A stream that generates `text`."""
    rest = iter(text)
    engine.generator.begin_stream_ex(
        prompt,
        GREEDY,
        max_new_tokens=len(text),
        ignore_eos=True,
        speculate=speculate,
        on_token=lambda sampled: next(rest),
        isolation_key=_own_key(),
    )
    return _timed(engine)


def _own(engine: Engine, prompt: list[int], n_tokens: int, speculate: bool) -> _Run:
    engine.generator.begin_stream_ex(
        prompt,
        GREEDY,
        max_new_tokens=n_tokens,
        ignore_eos=True,
        speculate=speculate,
        isolation_key=_own_key(),
    )
    return _timed(engine)


def _own_key() -> str:
    """So that later rounds do not draft from this text."""
    return f"bench {next(_numbers)}"


def _timed(engine: Engine) -> _Run:
    """Times the stream that has begun, without its first token, which includes the start."""
    generator = engine.generator
    generator.stream_ex()
    n_first, n_passes = generator.n_completion_tokens, 0
    start = time.perf_counter()
    while not generator.stream_ex().eos:
        n_passes += 1
    seconds = time.perf_counter() - start
    return _Run(generator.n_completion_tokens - n_first, n_passes + 1, seconds)
