"""One setting, several names: which of them a request uses, and whether they agree."""

from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from pydantic import BaseModel

from ..errors import RequestError

Read = Callable[[Any, str], Any]


class Given(NamedTuple):
    """The value of a setting, in the engine's terms, and the field that says it."""

    value: Any
    param: str


def settings_by_name(model: type[BaseModel]) -> dict[str, str]:
    """Field of `model` -> the setting that it is a name of, which may be itself."""
    settings = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        setting = extra.get("x-another-name-of", name) if isinstance(extra, dict) else name
        settings[name] = str(setting)
    return settings


def given(
    body: BaseModel,
    settings: Mapping[str, str],
    read: Mapping[str, Read],
    *,
    without: Set[str] = frozenset(),
) -> dict[str, Given]:
    """What the body says of each setting. null says nothing, nor does what `read` takes for it.

    `settings`: as settings_by_name gives it. `read`: setting -> function of a value and its field.
    `without`: settings that are left out.
    Raises RequestError when two names of one setting have different values.
    """
    found: dict[str, Given] = {}
    sent = body.model_fields_set
    for name, setting in settings.items():
        if name not in sent or setting in without or (value := getattr(body, name)) is None:
            continue
        if setting in read and (value := read[setting](value, name)) is None:
            continue
        first = found.setdefault(setting, Given(value, name))
        if first.value != value:
            raise RequestError(
                f"{first.param} and {name} are two names of one setting, and their values "
                "differ: send one of them",
                param=first.param,
            )
    return found
