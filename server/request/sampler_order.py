"""Orders of samplers as other servers write them, in the engine's names of stages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import RequestError

# The names of llama-server, text-generation-webui, Aphrodite and of the engine itself.
_STAGES: dict[str, tuple[str, ...]] = {
    "smoothing": ("smoothing",),
    "quadratic_sampling": ("smoothing",),
    "quadratic": ("smoothing",),
    "temperature": ("temperature",),
    "temp": ("temperature",),
    "dynamic_temperature": ("dynamic_temperature",),
    "top_n_sigma": ("top_n_sigma",),
    "top_nsigma": ("top_n_sigma",),
    "top_k": ("top_k",),
    "top_p": ("top_p",),
    "top_p_top_k": ("top_k", "top_p"),
    "top_a": ("top_a",),
    "min_p": ("min_p",),
    "tfs": ("tfs",),
    "tfs_z": ("tfs",),
    "typical": ("typical",),
    "typical_p": ("typical",),
    "typ_p": ("typical",),
    "mirostat": ("mirostat",),
    "xtc": ("xtc",),
}
# These change logits, and here always before all stages.
_ADJUSTERS = frozenset(
    {
        "penalties",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "dry",
    }
)
# Samplers that this server does not have; their own fields are answered with a warning.
_UNKNOWN_HERE = frozenset(
    {
        "adaptive_p",
        "encoder_repetition_penalty",
        "epsilon_cutoff",
        "eta_cutoff",
        "infill",
        "no_repeat_ngram",
        "no_repeat_ngram_size",
    }
)
_LETTERS = {
    "d": "dry",
    "e": "penalties",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "i": "infill",
    "a": "adaptive_p",
}
# KoboldCpp's numbers; min_p and the dynamic temperature go with their neighbours there.
_NUMBERS: tuple[tuple[str, ...], ...] = (
    ("top_k",),
    ("top_a",),
    ("top_p", "min_p"),
    ("tfs",),
    ("typical",),
    ("smoothing", "temperature", "dynamic_temperature"),
    (),
)
_BEHIND_NUMBERS = ("top_n_sigma", "mirostat", "xtc")

# Stage -> the settings that turn it off.
NEUTRAL: Mapping[str, Mapping[str, float | bool]] = {
    "smoothing": {"smoothing_factor": 0.0},
    "temperature": {"temperature": 1.0},
    "top_n_sigma": {"top_n_sigma": 0.0},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1.0},
    "top_a": {"top_a": 0.0},
    "min_p": {"min_p": 0.0},
    "tfs": {"tfs": 1.0},
    "typical": {"typical_p": 1.0},
    "mirostat": {"mirostat": False},
    "dynamic_temperature": {"min_temperature": 0.0, "max_temperature": 0.0},
    "xtc": {"xtc_probability": 0.0},
}


class Order(NamedTuple):
    """What a list of samplers says."""

    stages: tuple[str, ...]
    late_adjuster: str | None
    """The first penalty, or dry, that is listed after a stage."""


def read_order(wire: Sequence[str | int] | str, param: str) -> Order | None:
    """Raises RequestError for a name that no server has; None for an empty string."""
    if isinstance(wire, str):
        names: Sequence[str | int] = _split(wire)
        if not names:
            return None
    else:
        names = wire
    if names and all(isinstance(name, int) for name in names):
        return _from_numbers([name for name in names if isinstance(name, int)], param)
    stages: list[str] = []
    read: set[str] = set()
    late_adjuster = None
    for name in names:
        name = str(name).strip().lower()
        if name in _ADJUSTERS:
            if stages and late_adjuster is None:
                late_adjuster = name
        elif name in _STAGES:
            # SillyTavern lists one sampler under two names: it runs in the place of the first. A
            # name that is repeated is a mistake, which the engine's own check finds.
            stages += [each for each in _STAGES[name] if each not in stages or name in read]
            read.add(name)
        elif name not in _UNKNOWN_HERE:
            raise RequestError(
                f"{param} must hold names of samplers: {', '.join(NEUTRAL)}", param=param
            )
    return Order(tuple(stages), late_adjuster)


def complete_order(order: Order, used: Sequence[str]) -> tuple[str, ...]:
    """The stages, with those added that other servers do not list."""
    stages = list(order.stages)
    is_apart = "dynamic_temperature" not in stages and "temperature" in stages
    if "dynamic_temperature" in used and is_apart:
        stages.insert(stages.index("temperature") + 1, "dynamic_temperature")
    if "mirostat" in used and "mirostat" not in stages:
        stages.append("mirostat")
    return tuple(stages)


def _split(text: str) -> list[str]:
    for separator in ("\n", ";", ","):
        if separator in text:
            return [name for name in text.split(separator) if name.strip()]
    if text and text not in _STAGES and all(letter in _LETTERS for letter in text):
        return [_LETTERS[letter] for letter in text]
    return [text] if text.strip() else []


def _from_numbers(numbers: Sequence[int], param: str) -> Order:
    if not all(0 <= number < len(_NUMBERS) for number in numbers):
        raise RequestError(
            f"{param} must hold numbers of samplers, 0 to {len(_NUMBERS) - 1}", param=param
        )
    stages = [stage for number in numbers for stage in _NUMBERS[number]]
    return Order((*stages, *_BEHIND_NUMBERS), None)
