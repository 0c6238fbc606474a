"""What is wrong with an option's value: which option, where it was set, what is allowed.

Owns the words. `server.settings` owns the rules.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from ..settings import Settings, set_variable

_LONGEST_SHOWN = 60


def validation_message(error: ValidationError, *, flags: Mapping[str, object]) -> str:
    """What is wrong, option by option. `flags`: the options on the command line. Shows no API key,
    not even after a misspelt option.
    """
    return "; ".join(_message(dict(detail), flags) for detail in error.errors(include_url=False))


def bounds(field: FieldInfo) -> str:
    """The range of a number: "0 to 65535", "1 or more", "above 0"; "" without one."""
    limits = {
        name: getattr(each, name)
        for each in field.metadata
        for name in ("ge", "gt", "le")
        if hasattr(each, name)
    }
    if "le" in limits:
        return f"{limits['ge']} to {limits['le']}"
    if "ge" in limits:
        return f"{limits['ge']} or more"
    return f"above {limits['gt']}" if "gt" in limits else ""


def flag(option: str) -> str:
    """The flag of an option of `Settings`."""
    return "--model" if option == "models" else f"--{option.replace('_', '-')}"


def _message(detail: dict[str, Any], flags: Mapping[str, object]) -> str:
    message = detail["msg"].removeprefix("Value error, ")
    if not detail["loc"]:
        return str(message)
    name = str(detail["loc"][0])
    if name not in Settings.model_fields:
        return f"{name}: {message}"
    if detail["type"] == "value_error":
        return f"{_source(name, flags)}: {message}"
    said = "" if name in ("api_keys", "admin_keys") else f", not {_shown(detail['input'])}"
    return f"{_source(name, flags)} must be {_allowed(name, detail['type'])}{said}"


def _source(name: str, flags: Mapping[str, object]) -> str:
    """The option as it was set: the flag, the variable or the key of the file."""
    if name in flags:
        return name.upper() if name == "model" else flag(name)
    return set_variable(name) or f"{name} in the file of --config"


def _allowed(name: str, kind: str) -> str:
    field = Settings.model_fields[name]
    types = (field.annotation, *get_args(field.annotation))
    if get_origin(field.annotation) is Literal:
        *most, last = get_args(field.annotation)
        return f"{', '.join(most)} or {last}"
    if bool in types:
        return "true or false"
    if int in types or float in types:
        noun = "a whole number" if int in types else "a number"
        noun = "a finite number" if kind == "finite_number" else noun
        off = ", or off" if name == "queue_timeout" else ""
        return " ".join(word for word in (noun, _in_words(field)) if word) + off
    if kind == "string_too_short":
        return "a name with at least one character"
    return "a list of texts" if get_origin(field.annotation) is tuple else "a text"


def _in_words(field: FieldInfo) -> str:
    """ "from 0 to 65535", "from 1 on", "above 0"."""
    limits = bounds(field)
    if limits.endswith(" or more"):
        return f"of at least {limits.removesuffix(' or more')}"
    return f"from {limits}" if " to " in limits else limits


def _shown(value: object) -> str:
    text = repr(value)
    hint = ""
    if isinstance(value, str) and value.startswith("tcp://"):
        hint = " (Kubernetes sets this for a service named soliton: use enableServiceLinks: false)"
    return (text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…") + hint
