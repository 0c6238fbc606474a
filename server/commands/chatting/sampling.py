"""/set: the settings of a chat by name, read from words and shown.

Owns the names and the words. Their ranges belong to the engine, or to the server that is asked.
"""

from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...suggest import did_you_mean
from ..arguments import at_least, read_sampling, sampling_help, sampling_names
from ..terminal import CommandError
from .answer import ChatSettings

MAX_TOKENS = "max_tokens"
SETTINGS = (MAX_TOKENS, *sampling_names())
_TEXTS = "dry_sequence_breakers"  # several of them, with spaces between
DEFAULT = "default"
"""The value that takes a setting back."""


def checked_name(text: str) -> str:
    """A setting's name, which may be written with hyphens. Raises CommandError with the nearest."""
    name = text.lstrip("-").replace("-", "_").lower()
    if name not in SETTINGS:
        near = did_you_mean(name, SETTINGS, cutoff=0.5)
        raise CommandError(f"no setting is called {text!r}{near or '; /set lists all'}")
    return name


def changed(settings: ChatSettings, name: str, text: str) -> ChatSettings:
    """`settings` with another value. Raises CommandError if `text` cannot be read as one."""
    if text == DEFAULT:
        sampling = {each: value for each, value in settings.sampling.items() if each != name}
        return ChatSettings(sampling, None if name == MAX_TOKENS else settings.max_tokens)
    if name == MAX_TOKENS:
        return replace(settings, max_tokens=_count(text))
    return replace(settings, sampling={**settings.sampling, name: read_sampling(name, text)})


def listed(settings: ChatSettings, defaults: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Each setting: its name, its value, and whether it was set."""
    for name in SETTINGS:
        yield name, value_of(settings, defaults, name), is_set(settings, name)


def is_set(settings: ChatSettings, name: str) -> bool:
    return settings.max_tokens is not None if name == MAX_TOKENS else name in settings.sampling


def value_of(settings: ChatSettings, defaults: Mapping[str, Any], name: str) -> str:
    """The value in force, as it can be typed; "" if it is not known."""
    if name == MAX_TOKENS:
        return (
            "the rest of the context" if settings.max_tokens is None else str(settings.max_tokens)
        )
    values = settings.sampling if name in settings.sampling else defaults
    return _shown(values[name], is_text=name == _TEXTS) if name in values else ""


def meaning(name: str) -> str:
    return "most tokens of one answer" if name == MAX_TOKENS else sampling_help(name)


def _count(text: str) -> int:
    try:
        return at_least(1)(text)
    except ArgumentTypeError as error:
        raise CommandError(f"{MAX_TOKENS} {error}") from error


def _shown(value: Any, *, is_text: bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == {} or value == () or value == []:
        return "none"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={each:g}" for key, each in value.items())
    if is_text:
        return " ".join(each.replace("\n", "\\n").replace("\t", "\\t") for each in value)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
