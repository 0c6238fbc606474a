"""The settings of a text by llama-server's names: of an answer, and the defaults in /props.

Owns which setting of the engine each name is. A key of llama-server's that has no meaning here is
there with its only value; what the engine has besides keeps its own name.
"""

from dataclasses import asdict
from math import isfinite
from typing import Any

from engine import SamplingSettings, StreamOptions

ANY_SEED = 2**32 - 1
"""llama-server's word for a seed that is drawn."""

_STAGES = {"typical": "typ_p"}
_GRAMMARS = ("gbnf", "lark")
# What this server does not have.
_FIXED: dict[str, Any] = {
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "n_keep": 0,
    "n_discard": 0,
    "min_keep": 0,
    "grammar_lazy": False,
    "grammar_triggers": [],
    "preserved_tokens": [],
    "chat_format": "Content-only",
    "reasoning_format": "none",
    "reasoning_in_content": False,
    "generation_prompt": "",
    "backend_sampling": False,
    "lora": [],
}


def generation_settings(
    settings: SamplingSettings,
    options: StreamOptions,
    *,
    seed: int,
    n_top: int = 0,
    stream: bool = False,
    after_sampling: bool = False,
    timings_per_token: bool = False,
) -> dict[str, Any]:
    """`n_top`: alternatives per token. The others are switches of the request."""
    n_predict = -1 if options.max_new_tokens is None else options.max_new_tokens
    biases = sorted(settings.logit_bias.items())
    return {
        **asdict(settings),
        **_FIXED,
        **_temperature(settings),
        "dry_penalty_last_n": settings.dry_range or -1,
        "dry_sequence_breakers": list(settings.dry_sequence_breakers),
        "grammar": _grammar(options),
        "ignore_eos": options.ignore_eos,
        # JSON has no infinity: as in a request of llama-server, false is a token that cannot come.
        "logit_bias": [[id_, bias if isfinite(bias) else False] for id_, bias in biases],
        "max_tokens": n_predict,
        "mirostat": 2 if settings.mirostat else 0,
        "n_predict": n_predict,
        "n_probs": n_top,
        "post_sampling_probs": after_sampling,
        "repeat_last_n": settings.repetition_range,
        "repeat_penalty": settings.repetition_penalty,
        "samplers": _samplers(settings),
        "seed": seed,
        "speculative.types": "ngram" if options.speculate else "none",
        "stop": list(options.stop),
        "stream": stream,
        "timings_per_token": timings_per_token,
    }


def _temperature(settings: SamplingSettings) -> dict[str, float]:
    """A dynamic one as its middle and its width."""
    low, high = settings.min_temperature, settings.max_temperature
    is_dynamic = high > low
    return {
        "temperature": (low + high) / 2 if is_dynamic else settings.temperature,
        "dynatemp_range": (high - low) / 2 if is_dynamic else 0.0,
        "dynatemp_exponent": settings.temperature_exponent,
    }


def _samplers(settings: SamplingSettings) -> list[str]:
    """Those that run, in their order."""
    off = SamplingSettings()
    names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    adjusters = {
        "penalties": any(getattr(settings, name) != getattr(off, name) for name in names),
        "dry": settings.dry_multiplier > 0,
    }
    stages = [stage.name.lower() for stage, _ in settings.stages()]
    return [
        *(name for name, is_on in adjusters.items() if is_on),
        *(_STAGES.get(stage, stage) for stage in stages),
    ]


def _grammar(options: StreamOptions) -> str:
    spec = options.constraint
    is_text = spec is not None and spec.kind in _GRAMMARS
    return str(spec.value) if spec is not None and is_text else ""
