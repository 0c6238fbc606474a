"""From the constraint fields of a request to one ConstraintSpec, or none.

Owns which field asks for what. Compiles nothing: the engine does, and says what is wrong.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from engine import ConstraintSpec, is_gbnf

from ..errors import RequestError
from ..http.json_body import check_size
from ..schema.constraint import ConstraintFields, ResponseFormat, StructuredOutputs

# SillyTavern and llama.cpp's older page always send them, empty where there is no grammar.
_MAY_BE_EMPTY = ("grammar_string", "grammar")
# With other kinds of constraint there is no JSON to write.
_WITH_JSON = ("json_object", "json_schema", "lark")


def schema_length(body: ConstraintFields) -> int:
    """How many characters there are to read as JSON."""
    written = body.structured_outputs.json_ if body.structured_outputs is not None else None
    schemas = (written, body.guided_json, body.json_schema)
    return sum(len(schema) for schema in schemas if isinstance(schema, str))


def constraint_of(body: ConstraintFields) -> ConstraintSpec | None:
    """What the text must be, with the field that says it as `param`. Raises RequestError when two
    fields ask for different things.
    """
    requested = [*_requested(body)]
    if not requested:
        return None
    first, *others = requested
    for other in others:
        if other != first:
            raise RequestError(
                f"{first.param} and {other.param} ask for different constraints: send one of them",
                param=other.param,
            )
    white_space = _white_space(body)
    if white_space is None or first.kind not in _WITH_JSON:
        return first
    return replace(first, whitespace_pattern=white_space[0])


def ignored_constraint_fields(body: ConstraintFields) -> Iterator[tuple[str, str]]:
    """(field, why it has no effect)"""
    for param in _MAY_BE_EMPTY:
        if getattr(body, param) == "":
            yield param, "it is empty, and so asks for nothing"
    white_space = _white_space(body)
    if white_space is not None:
        requested = constraint_of(body)
        if requested is None or requested.kind not in _WITH_JSON:
            yield white_space[1], "it has no effect without a constraint that asks for JSON"


def _white_space(body: ConstraintFields) -> tuple[str, str] | None:
    """The pattern of white space, and the field that says it."""
    wire = body.structured_outputs
    new = None if wire is None else wire.whitespace_pattern
    old = body.guided_whitespace_pattern
    if new is not None and old is not None and new != old:
        raise RequestError(
            "structured_outputs.whitespace_pattern and guided_whitespace_pattern differ",
            param="guided_whitespace_pattern",
        )
    if new is not None:
        return new, "structured_outputs.whitespace_pattern"
    return None if old is None else (old, "guided_whitespace_pattern")


def _requested(body: ConstraintFields) -> Iterator[ConstraintSpec]:
    if body.response_format is not None:
        yield from _of_response_format(body.response_format)
    if body.structured_outputs is not None:
        yield from _of_structured_outputs(body.structured_outputs)
    for param, schema in (("guided_json", body.guided_json), ("json_schema", body.json_schema)):
        if schema is not None:
            yield _of_schema(schema, param)
    for param, regex in (
        ("guided_regex", body.guided_regex),
        ("regex_pattern", body.regex_pattern),
        ("regex", body.regex),
    ):
        if regex is not None:
            yield _of_regex(regex, param)
    if body.guided_choice is not None:
        yield ConstraintSpec("choices", tuple(body.guided_choice), param="guided_choice")
    for param, grammar in (
        ("guided_grammar", body.guided_grammar),
        ("grammar_string", body.grammar_string),
        ("grammar", body.grammar),
    ):
        if grammar is not None and (grammar or param not in _MAY_BE_EMPTY):
            yield _of_grammar(grammar, param)


def _of_response_format(wire: ResponseFormat) -> Iterator[ConstraintSpec]:
    named = wire.json_schema
    schema = named.schema_ if named is not None else None
    if wire.type != "json_schema" and named is not None:
        raise RequestError(
            "response_format.json_schema needs type json_schema",
            param="response_format.json_schema",
        )
    own, param = wire.schema_, "response_format.schema"
    if own is None and wire.value is not None:
        own, param = wire.value, "response_format.value"
    elif wire.value is not None and wire.value != own:
        raise RequestError(
            "response_format.schema and response_format.value differ",
            param="response_format.value",
        )
    if schema is not None and own is not None and schema != own:
        raise RequestError(f"response_format.json_schema.schema and {param} differ", param=param)
    if wire.type == "text":
        if own is not None:
            raise RequestError(f"{param} needs type json_schema", param=param)
        return
    if wire.type == "json_schema" and named is None and own is None:
        raise RequestError(
            "response_format needs json_schema when its type is json_schema",
            param="response_format.json_schema",
        )
    schema = own if schema is None else schema
    if schema is None:
        yield ConstraintSpec("json_object", param="response_format")
    else:
        yield ConstraintSpec("json_schema", schema, param="response_format")


def _of_structured_outputs(wire: StructuredOutputs) -> Iterator[ConstraintSpec]:
    requested = [*_within_structured_outputs(wire)]
    if not requested:
        raise RequestError(
            "structured_outputs asks for nothing: "
            "send json, json_object: true, regex, choice or grammar in it, or leave it out",
            param="structured_outputs",
        )
    yield from requested


def _within_structured_outputs(wire: StructuredOutputs) -> Iterator[ConstraintSpec]:
    if wire.json_ is not None:
        yield _of_schema(wire.json_, "structured_outputs.json")
    if wire.regex is not None:
        yield _of_regex(wire.regex, "structured_outputs.regex")
    if wire.choice is not None:
        yield ConstraintSpec("choices", tuple(wire.choice), param="structured_outputs.choice")
    if wire.grammar is not None:
        yield _of_grammar(wire.grammar, "structured_outputs.grammar")
    if wire.json_object:
        yield ConstraintSpec("json_object", param="structured_outputs.json_object")


def _of_schema(wire: Mapping[str, Any] | str, param: str) -> ConstraintSpec:
    if not isinstance(wire, str):
        return ConstraintSpec("json_schema", wire, param=param)
    check_size(wire.encode("utf-8", "surrogatepass"), name=param, param=param)
    try:
        schema = json.loads(wire)
    except (ValueError, RecursionError):
        raise RequestError(f"{param} must be a JSON schema; it is not JSON", param=param) from None
    if not isinstance(schema, dict):
        raise RequestError(f"{param} must be a JSON schema: an object", param=param)
    return ConstraintSpec("json_schema", schema, param=param)


def _of_regex(regex: str, param: str) -> ConstraintSpec:
    if not regex:
        raise RequestError(
            f"{param} is empty, and only an empty text would match: "
            "send a regular expression, or leave it out",
            param=param,
        )
    return ConstraintSpec("regex", regex, param=param)


def _of_grammar(text: str, param: str) -> ConstraintSpec:
    if not text.strip():
        raise RequestError(
            f"{param} is empty: send a grammar in Lark or in GBNF, or leave it out", param=param
        )
    return ConstraintSpec("gbnf" if is_gbnf(text) else "lark", text, param=param)
