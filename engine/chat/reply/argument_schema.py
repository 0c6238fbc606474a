"""How the arguments of a call can be written outside of JSON.

Owns which schemas can be enforced there. Knows no tags and no grammar.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .argument_value import DEFINITIONS, followed, types_of

SCALARS = frozenset({"boolean", "integer", "null", "number"})
_MEMBERS = frozenset({"type", "properties", "required", "additionalProperties", *DEFINITIONS})
_KEY = re.compile(r"[\w.$-]{1,64}")
_LOCAL = tuple(f"#/{name}/" for name in DEFINITIONS)
_MAX_LENGTH = 1000
"""Characters; an automaton that counts further is large."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


class Text(NamedTuple):
    """A text of this many characters."""

    least: int = 0
    most: int | None = None

    @property
    def is_free(self) -> bool:
        return not self.least and self.most is None


class Literals(NamedTuple):
    """One of these JSON values."""

    values: tuple[Any, ...]


class Json(NamedTuple):
    """A value that is no text."""

    schema: dict[str, Any]


Value = Text | Literals | Json


class Member(NamedTuple):
    key: str
    value: Value
    is_required: bool


def members_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Member] | None:
    """The members of an object, in order; None if its schema says more than they can. `root`: the
    schema that the references in it mean.
    """
    properties, required = schema.get("properties", {}), schema.get("required", ())
    is_open = schema.get("additionalProperties", True) is not False
    if types_of(schema) != {"object"} or not _MEMBERS.issuperset(schema):
        return None
    if (not properties and is_open) or not set(required) <= set(properties):
        return None
    members: list[Member] = []
    for key, given in properties.items():
        value = value_of(given, root)
        if value is None or not _KEY.fullmatch(key):
            return None
        members.append(Member(key, value, key in required))
    return members


def value_of(schema: Any, root: Mapping[str, Any]) -> Value | None:
    """None if the schema says more than can be enforced outside of JSON."""
    schema = followed(schema, root)
    if not isinstance(schema, Mapping):
        return None
    keys = set(schema)
    if keys & {"enum", "const"}:
        return _literals(schema) if keys <= {"type", "enum", "const"} else None
    types = types_of(schema)
    if types == {"string"}:
        return _text(schema) if keys <= {"type", "minLength", "maxLength"} else None
    if not keys or ("string" in types and types <= {"string", *SCALARS} and _only_types(schema)):
        return Text()  # whatever is written is one of them
    if not types or "string" in types:
        return None
    whole = {**schema, **{name: root[name] for name in DEFINITIONS if name in root}}
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(whole))
    return Json(whole) if all(each.startswith(_LOCAL) for each in references) else None


def _literals(schema: Mapping[str, Any]) -> Literals | None:
    listed = schema["enum"] if "enum" in schema else [schema["const"]]
    if "const" in schema:
        listed = [value for value in listed if value == schema["const"]]
    types = types_of({"type": schema["type"]}) if "type" in schema else _TYPES
    values = tuple(value for value in listed if any(_is_a(value, name) for name in types))
    return Literals(values) if values else None


def _is_a(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _text(schema: Mapping[str, Any]) -> Text | None:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    return Text(least, most) if max(least, most or 0) <= _MAX_LENGTH else None


def _only_types(schema: Mapping[str, Any]) -> bool:
    if set(schema) == {"anyOf"}:
        return all(isinstance(part, Mapping) and set(part) == {"type"} for part in schema["anyOf"])
    return set(schema) == {"type"}
