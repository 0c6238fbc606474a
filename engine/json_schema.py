"""Which JSON schemas can be enforced: everything else is refused by name and place.

Owns the list of known keywords and the walk over a schema. Knows no grammar: what the values of the
keywords mean is the business of the library that compiles them. That library passes over keywords
it has never heard of, and a constraint that is silently dropped is worse than an error; so only
known ones reach it, and annotations, which constrain nothing, are taken out here.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from .errors import InvalidInputError

# The library refuses to read JSON of more than 128 levels, and puts a few around the schema.
MAX_DEPTH = 100
MAX_VALUES = 200_000

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
# `discriminator` and `example` are OpenAPI's; generators of schemas write them beside `oneOf`.
_ANNOTATIONS = frozenset(
    {
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
# Further in, an id would change what the references below it mean.
_ROOT_ANNOTATIONS = frozenset({"$id", "$schema", "id"})

_Path = tuple[str, ...]


class _Place(NamedTuple):
    """A subschema that is still to be copied into `target[key]`."""

    path: _Path
    schema: object
    target: Any  # dict or list
    key: Any  # str or int


def enforceable(schema: Mapping[str, Any], *, param: str | None) -> dict[str, Any]:
    """A copy of the schema without annotations.

    Raises InvalidInputError that names the first keyword which cannot be enforced and where it is,
    a reference that leads out of the schema, or too deep nesting.
    """
    _check_size(schema, param)
    root: dict[str, Any] = {}
    schemas: set[_Path] = set()
    references: list[tuple[_Path, object]] = []
    todo = [_Place((), schema, root, "schema")]
    while todo:
        place = todo.pop()
        schemas.add(place.path)
        if isinstance(place.schema, bool):
            place.target[place.key] = place.schema
        elif isinstance(place.schema, Mapping):
            copy: dict[str, Any] = {}
            place.target[place.key] = copy
            # Reversed, so that the first fault of the text is the one that is named.
            todo += reversed(list(_subschemas(place.path, place.schema, copy, param)))
            if "$ref" in place.schema:
                references.append((place.path, place.schema["$ref"]))
        else:
            raise _error(place.path, "must be an object or a boolean", param)
    for path, reference in references:
        _check_reference(path, reference, schemas, param)
    result: dict[str, Any] = root["schema"]
    return result


def _subschemas(
    path: _Path, schema: Mapping[str, Any], copy: dict[str, Any], param: str | None
) -> Iterator[_Place]:
    """Copies the keywords in their order, which is the order of the output; gives what is below."""
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
        known = keyword in _SCHEMA | _SCHEMAS | _NAMED_SCHEMAS | _VALUES | _ANNOTATIONS
        if not known and (path or keyword not in _ROOT_ANNOTATIONS):
            raise _error(path, f"the keyword {str(keyword)[:100]!r} is not supported", param)
    # Of these pairs the library reads only one.
    if "prefixItems" in schema:
        if "additionalItems" in schema:
            raise _error(path, "'additionalItems' beside 'prefixItems' is not supported", param)
        if isinstance(schema.get("items"), list | tuple):
            raise _error(path, "an array of 'items' beside 'prefixItems' is not supported", param)


def _check_reference(
    path: _Path, reference: object, schemas: set[_Path], param: str | None
) -> None:
    if not isinstance(reference, str):
        raise _error((*path, "$ref"), "must be a string", param)
    if not reference.startswith("#"):
        raise _error(
            path, f"'$ref' {reference[:100]!r} is not supported: only '#...' in this schema", param
        )
    if reference.startswith("#/"):
        parts = unquote(reference[2:]).split("/")
        target = tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)
        if target not in schemas:
            raise _error(path, f"'$ref' {reference[:100]!r} leads to no schema", param)


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
    parts = (part.replace("~", "~0").replace("/", "~1") for part in path)
    place = "/".join(("#", *parts))
    shown = place if len(place) <= 200 else f"{place[:200]}..."
    return InvalidInputError(f"JSON schema, {shown}: {reason}", param=param)
