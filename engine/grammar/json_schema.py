"""Which JSON schemas can be enforced: everything else is refused by name and place.

Owns the list of known keywords and the walk over a schema. Knows no grammar: llguidance interprets
the values of the keywords. It ignores unknown keywords, and a constraint that is silently dropped
is worse than an error, so only known ones reach it. Annotations, which constrain nothing, are
removed here. OpenAPI's `nullable`, which llguidance does not know, becomes a type.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..errors import InvalidInputError

# The library refuses JSON of more than 128 levels, and wraps the schema in a few.
MAX_DEPTH = 100
MAX_VALUES = 50_000  # what compiles is far smaller

_SCHEMA = frozenset({"additionalItems", "additionalProperties", "items"})
_SCHEMAS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "patternProperties", "properties"})
_VALUES = frozenset(
    {
        "$anchor",
        "$ref",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "type",
    }
)
# Those of JSON Schema, and what OpenAPI, Gemini's and OpenAI's tools, and editors add.
_ANNOTATIONS = frozenset(
    {
        "$comment",
        "$schema",
        "$vocabulary",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "propertyOrdering",
        "readOnly",
        "strict",
        "title",
        "writeOnly",
        "xml",
    }
)
# Anyone may add keywords with this prefix; the library's own would change what is enforced.
_EXTENSION = "x-"
_LIBRARY_OPTIONS = "x-guidance"
# Below the root, an id changes the meaning of the references inside it.
_IDS = frozenset({"$id", "id"})
_NULLABLE = "nullable"
_KNOWN = _SCHEMA | _SCHEMAS | _NAMED_SCHEMAS | _VALUES | _ANNOTATIONS | _IDS | {_NULLABLE}
# With one of these, adding null to the type is not enough: the whole schema becomes an alternative.
_REFERRING = ("$ref", "allOf", "anyOf", "oneOf")

_Path = tuple[str, ...]


class _Place(NamedTuple):
    """A subschema to be copied into `target[key]`."""

    path: _Path
    schema: object
    target: Any  # dict or list
    key: Any  # str or int


class _Reference(NamedTuple):
    """A `$ref`, and the copy of the schema that contains it."""

    path: _Path
    value: object
    copy: dict[str, Any]


@dataclass(slots=True)
class _Found:
    """What the walk over a schema has found."""

    schemas: set[_Path] = field(default_factory=set)
    references: list[_Reference] = field(default_factory=list)
    ids: list[_Path] = field(default_factory=list)
    """Subschemas that have an id."""
    wrapped: set[_Path] = field(default_factory=set)
    """Subschemas that became the first alternative, null being the second."""


def enforceable(schema: Mapping[str, Any], *, param: str | None) -> dict[str, Any]:
    """A copy of the schema without annotations, in which `nullable` is a type.

    Raises InvalidInputError for the first keyword that cannot be enforced, naming its place, for a
    reference that leads out of the schema, and for too much nesting.
    """
    _check_size(schema, param)
    root: dict[str, Any] = {}
    found = _Found()
    todo = [_Place((), schema, root, "schema")]
    while todo:
        place = todo.pop()
        found.schemas.add(place.path)
        if isinstance(place.schema, bool):
            place.target[place.key] = place.schema
        elif isinstance(place.schema, Mapping):
            # Reversed, so that the error names the first fault in the text.
            todo += reversed(_copied(place, place.schema, found, param))
        else:
            raise _error(place.path, "must be an object or a boolean", param)
    for reference in found.references:
        _follow(reference, found, param)
    result: dict[str, Any] = root["schema"]
    return result


def _copied(
    place: _Place, schema: Mapping[str, Any], found: _Found, param: str | None
) -> list[_Place]:
    """Puts the copy of one schema in its place. Returns its subschemas, still to be copied."""
    copy: dict[str, Any] = {}
    place.target[place.key] = copy
    below = list(_subschemas(place.path, schema, copy, param))
    if "$ref" in schema:
        found.references.append(_Reference(place.path, schema["$ref"], copy))
    if place.path and not _IDS.isdisjoint(schema):
        found.ids.append(place.path)
    nullable = schema.get(_NULLABLE, False)
    if not isinstance(nullable, bool):
        raise _error((*place.path, _NULLABLE), "must be a boolean", param)
    if nullable and any(keyword in copy for keyword in _REFERRING):
        # A reference to the schema includes null, so its name moves to the whole.
        anchor = {"$anchor": copy.pop("$anchor")} if "$anchor" in copy else {}
        place.target[place.key] = {**anchor, "anyOf": [copy, {"type": "null"}]}
        found.wrapped.add(place.path)
    elif nullable:
        _add_null(copy)
    return below


def _add_null(schema: dict[str, Any]) -> None:
    """Without `type`, `enum` and `const`, null is allowed already."""
    kind = schema.get("type")
    if isinstance(kind, str) and kind != "null":
        schema["type"] = [kind, "null"]
    elif isinstance(kind, list | tuple) and "null" not in kind:
        schema["type"] = [*kind, "null"]
    if isinstance(schema.get("enum"), list | tuple) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if schema.get("const") is not None:
        schema["enum"] = [schema.pop("const"), None]


def _subschemas(
    path: _Path, schema: Mapping[str, Any], copy: dict[str, Any], param: str | None
) -> Iterator[_Place]:
    """Copies the keywords in their order, which is that of the output. Yields the subschemas."""
    _check_keywords(path, schema, param)
    for keyword, value in schema.items():
        below = (*path, keyword)
        if keyword in _VALUES:
            copy[keyword] = value
        elif keyword in _NAMED_SCHEMAS:
            if not isinstance(value, Mapping):
                raise _error(below, "must be an object", param)
            copy[keyword] = dict.fromkeys(value)
            for name, subschema in value.items():
                yield _Place((*below, name), subschema, copy[keyword], name)
        elif keyword in _SCHEMAS and isinstance(value, list | tuple):
            copy[keyword] = [None] * len(value)
            for i, subschema in enumerate(value):
                yield _Place((*below, str(i)), subschema, copy[keyword], i)
        elif keyword in _SCHEMA:
            copy[keyword] = None
            yield _Place(below, value, copy, keyword)
        elif keyword in _SCHEMAS:
            raise _error(below, "must be an array", param)


def _check_keywords(path: _Path, schema: Mapping[str, Any], param: str | None) -> None:
    for keyword in schema:
        is_extension = str(keyword).startswith(_EXTENSION) and keyword != _LIBRARY_OPTIONS
        if keyword not in _KNOWN and not is_extension:
            raise _error(path, f"the keyword {str(keyword)[:100]!r} is not supported", param)
    # The library reads only one of each pair.
    if "prefixItems" in schema:
        if "additionalItems" in schema:
            raise _error(path, "'additionalItems' with 'prefixItems' is not supported", param)
        if isinstance(schema.get("items"), list | tuple):
            raise _error(path, "an array of 'items' with 'prefixItems' is not supported", param)


def _follow(reference: _Reference, found: _Found, param: str | None) -> None:
    """Checks where a reference leads, and makes it lead to the same schema in the copy."""
    path, value, copy = reference
    if not isinstance(value, str):
        raise _error((*path, "$ref"), "must be a string", param)
    if not value.startswith("#"):
        raise _error(
            path, f"'$ref' {value[:100]!r} is not supported: it must begin with '#'", param
        )
    for with_id in found.ids:
        if path[: len(with_id)] == with_id:
            raise _error(with_id, "an '$id' around a '$ref' is not supported", param)
    if not value.startswith("#/"):
        return
    parts = unquote(value[2:]).split("/")
    target = tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
    if target not in found.schemas:
        raise _error(path, f"'$ref' {value[:100]!r} does not lead to a schema", param)
    moved: list[str] = []
    for i, part in enumerate(target):
        moved += ("anyOf", "0", part) if target[:i] in found.wrapped else (part,)
    if len(moved) > len(target):
        copy["$ref"] = _pointer(moved)


def _check_size(schema: object, param: str | None) -> None:
    level: list[object] = [schema]
    n_values = 0
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _parts(value)]
        n_values += len(level)
        if not level:
            return
        if n_values > MAX_VALUES:
            raise InvalidInputError(
                f"the JSON schema is too large: at most {MAX_VALUES} values are allowed",
                param=param,
            )
    raise InvalidInputError(
        f"the JSON schema is too deep: at most {MAX_DEPTH} levels are allowed", param=param
    )


def _parts(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _error(path: _Path, reason: str, param: str | None) -> InvalidInputError:
    place = _pointer(path)
    shown = place if len(place) <= 200 else f"{place[:200]}..."
    return InvalidInputError(f"JSON schema, {shown}: {reason}", param=param)


def _pointer(path: Iterable[str]) -> str:
    return "/".join(("#", *(part.replace("~", "~0").replace("/", "~1") for part in path)))
