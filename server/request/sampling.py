"""From the sampling fields of a request to the engine's SamplingSettings.

Owns what the values of other servers mean, such as which of them mean "off". Ranges are the
engine's to check.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from engine import InvalidInputError, SamplingSettings

from ..errors import RequestError
from ..schema.sampling import SamplingFields
from .aliases import Given, Read, given, settings_by_name
from .sampler_order import NEUTRAL, complete_order, read_order

_NAMES = settings_by_name(SamplingFields)
# Not settings of the engine: these fields change others.
_MODIFIERS = ("dynamic_temperature", "dynatemp_range", "ban_eos_token")


def sampling_settings(
    body: SamplingFields,
    defaults: SamplingSettings,
    *,
    vocab_size: int,
    eos_token_ids: Sequence[int],
) -> SamplingSettings:
    """What the body says, on top of the model's defaults.

    Raises RequestError and InvalidInputError whose `param` is the field that was sent.
    """
    said = sampling_given(body)
    values = {setting: value for setting, (value, _) in said.items() if setting not in _MODIFIERS}
    params = {setting: param for setting, (_, param) in said.items()}
    if "dynatemp_range" in said:
        _set_dynamic_range(said, values, params, defaults)
    elif "dynamic_temperature" in said:
        _set_dynamic_temperature(said, values)
    if "ban_eos_token" in said and said["ban_eos_token"].value:
        values["banned_tokens"] = (*values.get("banned_tokens", ()), *eos_token_ids)
    _check_token_ids(values, params, vocab_size)
    order = values.pop("sampler_order", None)
    settings = _replaced(defaults, values, params)
    if order is None:
        return settings
    used = [stage.name.lower() for stage, _ in settings.stages()]
    stages = complete_order(order, used)
    off = {
        name: value
        for stage in used
        if stage not in stages and not settings.is_greedy
        for name, value in NEUTRAL[stage].items()
    }
    return _replaced(settings, {**off, "sampler_order": stages}, params)


def sampling_given(body: SamplingFields, *, without: Set[str] = frozenset()) -> dict[str, Given]:
    """What the body says of each setting, in the engine's terms, but for those in `without`."""
    return given(body, _NAMES, _READ, without=without)


def _replaced(
    settings: SamplingSettings, values: Mapping[str, Any], params: Mapping[str, str]
) -> SamplingSettings:
    try:
        return dataclasses.replace(settings, **values)
    except InvalidInputError as error:
        param = params.get(error.param or "", error.param)
        raise InvalidInputError(str(error), param=param) from None


def _set_dynamic_range(
    said: Mapping[str, Given],
    values: dict[str, Any],
    params: dict[str, str],
    defaults: SamplingSettings,
) -> None:
    """llama-server: a width on both sides of the temperature, which it replaces."""
    width = said["dynatemp_range"].value
    if not width >= 0:
        raise RequestError("dynatemp_range must be 0 or more", param="dynatemp_range")
    middle = values.get("temperature", defaults.temperature)
    ends = (max(0.0, middle - width), middle + width)
    for setting, end in zip(("min_temperature", "max_temperature"), ends, strict=True):
        if setting in said and not math.isclose(said[setting].value, end, abs_tol=1e-6):
            raise RequestError(
                f"dynatemp_range and {said[setting].param} disagree: send one of them",
                param="dynatemp_range",
            )
    if width and middle:
        values.update(temperature=1.0, min_temperature=ends[0], max_temperature=ends[1])
        params.update(min_temperature="dynatemp_range", max_temperature="dynatemp_range")


def _set_dynamic_temperature(said: Mapping[str, Given], values: dict[str, Any]) -> None:
    """text-generation-webui: a switch, with both ends in place of the temperature."""
    if not said["dynamic_temperature"].value:
        for setting in ("min_temperature", "max_temperature", "temperature_exponent"):
            values.pop(setting, None)
    elif values.get("max_temperature", 0) > values.get("min_temperature", 0) and values.get(
        "temperature", 1
    ):
        values["temperature"] = 1.0


def _check_token_ids(values: Mapping[str, Any], params: Mapping[str, str], vocab_size: int) -> None:
    for setting in ("logit_bias", "allowed_tokens", "banned_tokens"):
        check_token_ids(
            tuple(values.get(setting, ())), vocab_size, param=params.get(setting, setting)
        )


def check_token_ids(token_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    """Raise InvalidInputError for an id outside the vocabulary."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        raise InvalidInputError(
            f"{param} holds a token id outside the vocabulary, 0 to {vocab_size - 1}", param=param
        )


# The readers: a value of the wire -> the engine's, or None where it says nothing.


def _unless(off: float, meaning: float | None) -> Read:
    """`off` means `meaning`; every other value means itself."""
    return lambda value, _: meaning if value == off else value


def _not_negative(value: float, _: str) -> float:
    return max(value, 0.0)


def _mirostat(value: bool | int, param: str) -> bool:
    if value is True or value is False:
        return value
    if value not in (0, 2):
        raise RequestError(
            f"{param} must be 0 (off) or 2: only version 2 of mirostat is supported", param=param
        )
    return value == 2


def _logit_bias(
    wire: Mapping[str, float | bool] | Sequence[tuple[int | str, float | bool]], param: str
) -> dict[int, float]:
    if isinstance(wire, Mapping):
        pairs = [(int(key) if is_token_id(key) else key, bias) for key, bias in wire.items()]
    else:
        pairs = list(wire)
    if any(isinstance(key, str) for key, _ in pairs):
        raise RequestError(f"{param} must have token ids as its keys", param=param)
    if any(bias is True for _, bias in pairs):
        raise RequestError(f"{param} must give each token a number or false", param=param)
    return {int(token_id): -math.inf if bias is False else bias for token_id, bias in pairs}


def is_token_id(text: str) -> bool:
    """Whether a key of an object is a token id."""
    return text.isascii() and text.isdecimal() and len(text) <= 10


def token_ids_of(wire: Sequence[int] | str, param: str) -> tuple[int, ...] | None:
    """Token ids from a list, or from a string of ids and commas; None for an empty string."""
    if not isinstance(wire, str):
        return tuple(wire)
    pieces = [piece.strip() for piece in wire.split(",")]
    digits = [piece for piece in pieces if piece]
    if not all(piece.isdecimal() and len(piece) <= 10 for piece in digits):
        raise RequestError(f"{param} must hold token ids with commas between them", param=param)
    return tuple(int(piece) for piece in digits) or None


def _breakers(wire: Sequence[str] | str, param: str) -> tuple[str, ...] | None:
    """A list; or a string that holds one as JSON, with or without its brackets, or with commas."""
    if not isinstance(wire, str):
        return tuple(wire)
    if not wire.strip():
        return None
    for text in (wire, f"[{wire}]"):
        try:
            strings = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(strings, list) and all(isinstance(string, str) for string in strings):
            return tuple(strings)
    if wire.lstrip().startswith("["):
        raise RequestError(f"{param} must hold a JSON list of strings", param=param)
    return tuple(piece for piece in wire.split(",") if piece)


_READ: Mapping[str, Read] = {
    "top_k": _unless(-1, 0),
    "top_n_sigma": _not_negative,
    "tfs": _unless(0, 1.0),
    "typical_p": _unless(0, 1.0),
    "dry_base": _unless(0, None),
    "dry_range": _unless(-1, 0),
    "seed": _unless(-1, None),
    "mirostat": _mirostat,
    "logit_bias": _logit_bias,
    "allowed_tokens": token_ids_of,
    "banned_tokens": token_ids_of,
    "dry_sequence_breakers": _breakers,
    "sampler_order": read_order,
}
