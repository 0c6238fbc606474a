"""Which field asks for which constraint, and that two of them exclude each other."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from engine import DEFAULT_MODEL, ConstraintSpec, Engine, SamplingSettings
from server.errors import RequestError
from server.request.constraint import constraint_of
from server.schema.completions import CompletionRequest

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
OTHER = {"type": "array"}
NO_MORE = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
    "additionalProperties": False,
}
OF_SCHEMA = ConstraintSpec("json_schema", SCHEMA)
JSON_OBJECT = ConstraintSpec("json_object")
REGEX = ConstraintSpec("regex", "[ab]+")
CHOICES = ConstraintSpec("choices", ("a", "b"))
LARK = ConstraintSpec("lark", 'start: "a" | "b"')
GBNF = ConstraintSpec("gbnf", '# a | b\nroot ::= "a" | "b"')
SPACES = {"whitespace_pattern": " "}


def request(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "x", **fields})


def of_format(**fields: Any) -> dict[str, Any]:
    return {"response_format": fields}


ASKED: list[tuple[dict[str, Any], ConstraintSpec | None, str]] = [
    ({}, None, ""),
    (of_format(type="text"), None, ""),
    (of_format(type="json_object"), JSON_OBJECT, "response_format"),
    (of_format(type="json"), JSON_OBJECT, "response_format"),
    (of_format(type="json_object", schema=SCHEMA), OF_SCHEMA, "response_format"),
    (of_format(type="json_schema", schema=SCHEMA), OF_SCHEMA, "response_format"),
    (of_format(type="json_object", value=SCHEMA), OF_SCHEMA, "response_format"),
    (of_format(type="json_object", value=SCHEMA, schema=SCHEMA), OF_SCHEMA, "response_format"),
    (
        of_format(
            type="json_schema",
            json_schema={"name": "n", "description": "d", "strict": True, "schema": SCHEMA},
        ),
        OF_SCHEMA,
        "response_format",
    ),
    (of_format(type="json_schema", json_schema={"name": "n"}), JSON_OBJECT, "response_format"),
    ({"structured_outputs": {"json": SCHEMA}}, OF_SCHEMA, "structured_outputs.json"),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, OF_SCHEMA, "structured_outputs.json"),
    ({"structured_outputs": {"regex": "[ab]+"}}, REGEX, "structured_outputs.regex"),
    ({"structured_outputs": {"choice": ["a", "b"]}}, CHOICES, "structured_outputs.choice"),
    ({"structured_outputs": {"grammar": LARK.value}}, LARK, "structured_outputs.grammar"),
    ({"structured_outputs": {"json_object": True}}, JSON_OBJECT, "structured_outputs.json_object"),
    ({"guided_json": SCHEMA}, OF_SCHEMA, "guided_json"),
    ({"guided_json": json.dumps(SCHEMA)}, OF_SCHEMA, "guided_json"),
    ({"guided_regex": "[ab]+"}, REGEX, "guided_regex"),
    ({"guided_choice": ["a", "b"]}, CHOICES, "guided_choice"),
    ({"guided_grammar": LARK.value}, LARK, "guided_grammar"),
    ({"json_schema": SCHEMA}, OF_SCHEMA, "json_schema"),
    ({"regex_pattern": "[ab]+"}, REGEX, "regex_pattern"),
    ({"grammar_string": LARK.value}, LARK, "grammar_string"),
    ({"grammar": LARK.value}, LARK, "grammar"),
    ({"grammar": GBNF.value}, GBNF, "grammar"),
    ({"grammar_string": GBNF.value}, GBNF, "grammar_string"),
    ({"guided_grammar": GBNF.value}, GBNF, "guided_grammar"),
    ({"structured_outputs": {"grammar": GBNF.value}}, GBNF, "structured_outputs.grammar"),
    ({"regex": "[ab]+"}, REGEX, "regex"),
    ({"grammar": "", "grammar_string": ""}, None, ""),
    ({"grammar": "", "guided_regex": "[ab]+"}, REGEX, "guided_regex"),
    (
        {"structured_outputs": {"json": SCHEMA, **SPACES}},
        replace(OF_SCHEMA, whitespace_pattern=" "),
        "structured_outputs.json",
    ),
    (
        {**of_format(type="json_object"), "guided_whitespace_pattern": ""},
        replace(JSON_OBJECT, whitespace_pattern=""),
        "response_format",
    ),
    ({"guided_regex": "[ab]+", "guided_whitespace_pattern": " "}, REGEX, "guided_regex"),
    ({"guided_whitespace_pattern": " "}, None, ""),
    ({"guided_json": SCHEMA, "json_schema": SCHEMA}, OF_SCHEMA, "guided_json"),
]


@pytest.mark.parametrize(("fields", "spec", "param"), ASKED)
def test_each_field_asks_for_its_constraint(
    fields: dict[str, Any], spec: ConstraintSpec | None, param: str
) -> None:
    requested = constraint_of(request(**fields))
    assert requested == spec
    assert (requested.param if requested else "") == param, "errors of the stream name the field"


TWO: list[tuple[dict[str, Any], str, str]] = [
    ({"guided_json": SCHEMA, "json_schema": OTHER}, "guided_json", "json_schema"),
    ({**of_format(type="json_object"), "grammar": "x"}, "response_format", "grammar"),
    ({"regex_pattern": "a", "guided_regex": "b"}, "guided_regex", "regex_pattern"),
    (
        {"structured_outputs": {"regex": "a", "json_object": True}},
        "structured_outputs.regex",
        "structured_outputs.json_object",
    ),
]


@pytest.mark.parametrize(("fields", "first", "second"), TWO)
def test_two_constraints_are_refused_by_both_names(
    fields: dict[str, Any], first: str, second: str
) -> None:
    with pytest.raises(RequestError, match=f"{first} and {second}") as caught:
        constraint_of(request(**fields))
    assert caught.value.param == second


REFUSED: list[tuple[dict[str, Any], str]] = [
    (of_format(type="json_schema"), "response_format.json_schema"),
    (of_format(type="text", value={}), "response_format.value"),
    (of_format(type="json_object", value={}, schema=SCHEMA), "response_format.value"),
    (of_format(type="text", json_schema={"name": "n"}), "response_format.json_schema"),
    (of_format(type="text", schema=SCHEMA), "response_format.schema"),
    (
        of_format(type="json_schema", schema=OTHER, json_schema={"schema": SCHEMA}),
        "response_format.schema",
    ),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_json": "5"}, "guided_json"),
    ({"guided_json": '{"a":' * 50_000}, "guided_json"),
    ({"json_schema": "NaN"}, "json_schema"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
    ({"structured_outputs": SPACES}, "structured_outputs"),
    ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
    ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar"),
    ({"guided_regex": ""}, "guided_regex"),
    ({"regex_pattern": ""}, "regex_pattern"),
    ({"regex": ""}, "regex"),
    ({"guided_grammar": ""}, "guided_grammar"),
    ({"grammar": " \n"}, "grammar"),
    (
        {"structured_outputs": {"json": SCHEMA, **SPACES}, "guided_whitespace_pattern": ""},
        "guided_whitespace_pattern",
    ),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_an_invalid_constraint_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        constraint_of(request(**fields))
    assert caught.value.param == param


NO_VALUES: list[tuple[dict[str, Any], str]] = [
    (of_format(type="structural_tag"), "response_format.type"),
    (of_format(), "response_format.type"),
    (of_format(type="json_schema", json_schema=5), "response_format.json_schema"),
    (of_format(type="json_object", schema=[]), "response_format.schema"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["x"] * 10_001}, "guided_choice"),
    ({"guided_json": []}, "guided_json"),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
    ({"regex_pattern": 5}, "regex_pattern"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "place"), NO_VALUES)
def test_other_kinds_of_values_do_not_fit_the_schema(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        request(**fields)
    assert ".".join(map(str, caught.value.errors()[0]["loc"])) == place


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"guided_choice": ["yes", "no"]}, ("yes", "no")),
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, None),
        ({"grammar": 'start: "yes" | "no"'}, ("yes", "no")),
        ({"grammar": 'root ::= "yes" | "no"'}, ("yes", "no")),
        ({"json_schema": NO_MORE}, None),
    ],
)
def test_the_engine_takes_what_is_made_of_them(
    engine: Engine, fields: dict[str, Any], texts: tuple[str, ...] | None
) -> None:
    spec = constraint_of(request(**fields))
    generator = engine.generator
    settings = SamplingSettings(temperature=0)
    generator.begin_stream_ex(engine.tokenizer.encode("Once"), settings, constraint=spec)
    text = ""
    while not (result := generator.stream_ex()).eos:
        text += result.chunk
    text += result.chunk
    if texts:
        assert text in texts
    elif "json_schema" in fields:
        assert isinstance(json.loads(text)["a"], int)
    else:
        assert len(text) == 3
        assert text.isdecimal()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(DEFAULT_MODEL, device="cpu")
