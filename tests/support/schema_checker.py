"""Whether a JSON value fits a schema: the keywords that constraints enforce, in plain Python."""

import json
import re
from decimal import Decimal
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, Decimal),
    "object": (dict,),
    "string": (str,),
}
_FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "ipv4": r"\d{1,3}(\.\d{1,3}){3}",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


def read_json(text: str) -> Any:
    """Numbers with a point or an exponent become Decimal, so that no digit is lost."""
    return json.loads(text, parse_float=Decimal)


def fits(value: Any, schema: Any, root: Any = None) -> bool:
    """Raises KeyError for an unknown keyword."""
    if isinstance(schema, bool):
        return schema
    if value is None and schema.get("nullable"):
        return True
    whole = schema if root is None else root
    return all(
        _KEYWORDS[keyword](value, wanted, schema, whole)
        for keyword, wanted in schema.items()
        if keyword not in ("$defs", "nullable") and not keyword.startswith("x-")
    )


def _is(value: Any, name: str) -> bool:
    if name == "integer":
        return _is(value, "number") and value == int(value)
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _ref(value: Any, wanted: str, root: Any) -> bool:
    target = root
    for part in wanted.split("/")[1:]:
        target = target[part]
    return fits(value, target, root)


def _properties(value: dict[str, Any], schema: Any, root: Any) -> bool:
    """`properties`, `patternProperties` and `additionalProperties` together."""
    for name, inner in value.items():
        schemas = [s for key, s in schema.get("properties", {}).items() if key == name]
        schemas += [s for p, s in schema.get("patternProperties", {}).items() if re.search(p, name)]
        schemas = schemas or [schema.get("additionalProperties", True)]
        if not all(fits(inner, each, root) for each in schemas):
            return False
    return True


def _items(value: list[Any], schema: Any, root: Any) -> bool:
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    each = [*first, *[rest] * max(0, len(value) - len(first))]
    return all(fits(inner, wanted, root) for inner, wanted in zip(value, each, strict=False))


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _if(kind: str, check: Any) -> Any:
    """Whether the keyword does not apply to this type of value."""
    return lambda v, w, s, r: not _is(v, kind) or check(v, w, s, r)


_KEYWORDS: dict[str, Any] = {
    "$ref": lambda v, w, s, r: _ref(v, w, r),
    "additionalProperties": _if("object", lambda v, w, s, r: _properties(v, s, r)),
    "allOf": lambda v, w, s, r: all(fits(v, each, r) for each in w),
    "anyOf": lambda v, w, s, r: any(fits(v, each, r) for each in w),
    "const": lambda v, w, s, r: _same(v, read_json(json.dumps(w))),
    "enum": lambda v, w, s, r: any(_same(v, read_json(json.dumps(each))) for each in w),
    "exclusiveMaximum": _if("number", lambda v, w, s, r: v < Decimal(str(w))),
    "exclusiveMinimum": _if("number", lambda v, w, s, r: v > Decimal(str(w))),
    "format": _if("string", lambda v, w, s, r: re.fullmatch(_FORMATS[w], v)),
    "items": _if("array", lambda v, w, s, r: _items(v, s, r)),
    "maxItems": _if("array", lambda v, w, s, r: len(v) <= w),
    "maxLength": _if("string", lambda v, w, s, r: len(v) <= w),
    "maxProperties": _if("object", lambda v, w, s, r: len(v) <= w),
    "maximum": _if("number", lambda v, w, s, r: v <= Decimal(str(w))),
    "minItems": _if("array", lambda v, w, s, r: len(v) >= w),
    "minLength": _if("string", lambda v, w, s, r: len(v) >= w),
    "minProperties": _if("object", lambda v, w, s, r: len(v) >= w),
    "minimum": _if("number", lambda v, w, s, r: v >= Decimal(str(w))),
    "multipleOf": _if("number", lambda v, w, s, r: v % Decimal(str(w)) == 0),
    "oneOf": lambda v, w, s, r: sum(fits(v, each, r) for each in w) == 1,
    "pattern": _if("string", lambda v, w, s, r: re.search(w, v)),
    "patternProperties": _if("object", lambda v, w, s, r: _properties(v, s, r)),
    "prefixItems": _if("array", lambda v, w, s, r: _items(v, s, r)),
    "properties": _if("object", lambda v, w, s, r: _properties(v, s, r)),
    "required": _if("object", lambda v, w, s, r: set(w) <= set(v)),
    "type": lambda v, w, s, r: any(_is(v, each) for each in ([w] if isinstance(w, str) else w)),
}
