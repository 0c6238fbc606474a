"""What the page of `soliton complete --html` says about its completion, and how to get it again.

Knows the engine and the command line; knows no HTML.
"""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from engine import Engine, Prefill, SamplingSettings, StreamResult

from ..version import own_version
from .token_page import Completion


def completion_of(
    engine: Engine,
    settings: SamplingSettings,
    prefill: Prefill,
    results: Sequence[StreamResult],
    prompt: str,
    argv: Sequence[str],
) -> Completion:
    """`argv`: the arguments of `soliton complete`."""
    return Completion(
        prompt=prompt,
        text="".join(result.chunk for result in results),
        tokens=[token for result in results for token in result.tokens],
        ended_by=[token for result in results for token in result.dropped],
        end=results[-1].eos_reason,
        about={
            "model": engine.model_id,
            "system_fingerprint": engine.fingerprint,
            "soliton_version": own_version(),
            "seed": prefill.seed,
            "prompt_tokens": prefill.n_prompt,
        },
        settings=dict(_changed(settings)),
        command=_command(argv, prefill.seed),
    )


def _changed(settings: SamplingSettings) -> Iterator[tuple[str, Any]]:
    """The settings that are not neutral, the seed aside."""
    neutral = SamplingSettings()
    for each in dataclasses.fields(settings):
        value = getattr(settings, each.name)
        if each.name != "seed" and value != getattr(neutral, each.name):
            yield each.name, value


def _command(argv: Sequence[str], seed: int) -> str:
    """The same command without the file, and with the seed that was drawn."""
    words, given = [], iter(argv)
    for word in given:
        if word == "--html":
            next(given, None)
        elif not word.startswith("--html="):
            words.append(word)
    if not any(word.partition("=")[0] == "--seed" for word in words):
        words += ["--seed", str(seed)]
    return shlex.join(["soliton", "complete", *words])
