"""JSON schemas: what reaches the compiler, and that what is drawn under them fits them."""

import json
import random
from typing import Any

import pytest

from engine import InvalidInputError
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.json_schema import MAX_DEPTH, enforceable
from engine.grammar.spec import ConstraintSpec
from tests.support.schema_checker import fits, read_json
from tests.support.vocabularies import Vocabulary, ids_in, joined, vocabulary

CLOSING = (b'"', b"}", b"]", b":", b"1")
SHORT = {"type": "string", "maxLength": 5}
SCHEMAS: dict[str, Any] = {
    "range": {"type": "integer", "minimum": -12, "maximum": 7},
    "exclusive": {"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12},
    "draft 4": {"type": "number", "exclusiveMinimum": 0.25, "maximum": 2.5},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 10_000},
    "multiple of a fraction": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 99},
    "length": {"type": "string", "minLength": 2, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]+$", "maxLength": 9},
    "inner pattern": {"type": "string", "pattern": "ab", "maxLength": 8},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    "enum": {"enum": ["a", 1, 2.5, None, True, [1, "b"], {"c": []}]},
    "const": {"const": {"a": [1, {"b": "\u00e9\n"}]}},
    "types": {"type": ["string", "null", "boolean"], "maxLength": 3},
    "bounds": {"type": "array", "items": SHORT, "minItems": 2, "maxItems": 4},
    "tuple": {"type": "array", "prefixItems": [SHORT, {"type": "boolean"}], "items": False},
    "tuple and more": {
        "type": "array",
        "prefixItems": [{"type": "null"}],
        "items": {"type": "boolean"},
        "minItems": 1,
        "maxItems": 5,
    },
    "optional": {
        "type": "object",
        "properties": {"a": SHORT, "b": {"type": "null"}, "c": {"type": "boolean"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "additional": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "additionalProperties": {"type": "integer", "maximum": 9, "minimum": 0},
        "required": ["a"],
        "maxProperties": 2,
    },
    "required only": {"type": "object", "required": ["x"], "additionalProperties": SHORT},
    "patterns": {
        "type": "object",
        "patternProperties": {"^n_": {"type": "integer", "maximum": 9, "minimum": 0}},
        "additionalProperties": False,
    },
    "any": {"anyOf": [SHORT, {"type": "array", "items": SHORT, "maxItems": 2}, {"const": 5}]},
    "one": {"oneOf": [SHORT, {"type": "boolean"}, {"type": "null"}]},
    "all": {
        "allOf": [
            {"type": "object", "properties": {"a": SHORT}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ],
    },
    "siblings": {"$ref": "#/$defs/s", "maxLength": 2, "$defs": {"s": {"type": "string"}}},
    "nullable": {
        "type": "array",
        "prefixItems": [
            {"type": "boolean", "nullable": True},
            {"enum": ["a"], "nullable": True},
            {"oneOf": [SHORT, {"type": "boolean"}], "nullable": True, "x-order": 3},
        ],
        "items": False,
        "minItems": 3,
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer", "minimum": 0, "maximum": 9},
                    "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "left"],
                "additionalProperties": False,
            }
        },
    },
}


@pytest.fixture(scope="module", params=["bundled", "sentencepiece"])
def vocab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return vocabulary(request.param, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def compiler(vocab: Vocabulary) -> ConstraintCompiler:
    return ConstraintCompiler(vocab.tokenizer, vocab.size, vocab.eos)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_drawn_value_fits(name: str, vocab: Vocabulary, compiler: ConstraintCompiler) -> None:
    rng = random.Random(name)
    for _ in range(10):
        constraint = compiler.compile(ConstraintSpec("json_schema", SCHEMAS[name]))
        token_ids: list[int] = []
        while not constraint.is_over:
            allowed = ids_in(constraint.mask())
            if len(token_ids) > 30:
                closing = [i for i in allowed if vocab.tokenizer.token_bytes(i) in CLOSING]
                allowed = closing or allowed
            token_ids.append(rng.choice(allowed))
            constraint.accept(token_ids[-1])
            assert len(token_ids) < 3000
        text = joined(vocab.tokenizer, (i for i in token_ids if i not in vocab.eos)).decode()
        assert fits(read_json(text), SCHEMAS[name]), text


def test_annotations_are_taken_out_and_the_order_stays() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/person",
        "title": "Person",
        "type": "object",
        "required": ["z"],
        "properties": {
            "z": {"type": "string", "description": "last", "default": "", "examples": ["z"]},
            "title": {"enum": [{"not": 1}], "deprecated": True},
            "a": True,
        },
        "$defs": {"unused": {"items": [{"readOnly": True}, False], "additionalItems": {}}},
    }
    expected = {
        "type": "object",
        "required": ["z"],
        "properties": {"z": {"type": "string"}, "title": {"enum": [{"not": 1}]}, "a": True},
        "$defs": {"unused": {"items": [{}, False], "additionalItems": {}}},
    }
    before = json.dumps(schema)
    # As text, because the order of properties is the order in which they are written.
    assert json.dumps(enforceable(schema, param=None)) == json.dumps(expected)
    assert json.dumps(schema) == before


def test_what_other_tools_write_beside_a_schema_constrains_nothing() -> None:
    noise: dict[str, Any] = {
        "strict": True,
        "propertyOrdering": ["a"],
        "x-order": 1,
        "x-enum-varnames": ["A"],
        "externalDocs": {"url": "x"},
        "xml": {"name": "x"},
        "$schema": "x",
        "$id": "x",
        "$comment": 3,
        "nullable": False,
        "contentEncoding": "base64",
    }
    inner: dict[str, Any] = {"type": "string", **noise}
    schema = {"type": "object", "properties": {"a": inner, "strict": inner}, **noise}
    plain = {"type": "string"}
    assert enforceable(schema, param=None) == {
        "type": "object",
        "properties": {"a": plain, "strict": plain},
    }


NULLABLE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "string"}, {"type": ["string", "null"]}),
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ({"type": "null"}, {"type": "null"}),
    ({"type": "string", "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"const": 3}, {"enum": [3, None]}),
    ({"minLength": 3}, {"minLength": 3}),
    ({"$ref": "#/$defs/x"}, {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}),
    (
        {"type": "integer", "$anchor": "n", "oneOf": [{"minimum": 2}]},
        {
            "$anchor": "n",
            "anyOf": [{"type": "integer", "oneOf": [{"minimum": 2}]}, {"type": "null"}],
        },
    ),
]


@pytest.mark.parametrize(("schema", "expected"), NULLABLE)
def test_nullable_means_or_null(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    defs: dict[str, Any] = {"$defs": {"x": True}}
    whole = {"items": {**schema, "nullable": True}, **defs}
    assert enforceable(whole, param=None) == {"items": expected, **defs}


def test_a_reference_into_what_may_be_null_still_leads_there() -> None:
    inner = {"anyOf": [{"$ref": "#/items/$defs/a~1b"}], "$defs": {"a/b": {"type": "boolean"}}}
    schema = {"items": {**inner, "nullable": True}}
    copied = enforceable({**schema, "properties": {"whole": {"$ref": "#/items"}}}, param=None)
    moved = {**inner, "anyOf": [{"$ref": "#/items/anyOf/0/$defs/a~1b"}]}
    assert copied == {
        "items": {"anyOf": [moved, {"type": "null"}]},
        "properties": {"whole": {"$ref": "#/items"}},
    }


def test_the_first_unknown_keyword_is_named_with_its_place() -> None:
    schema = {"properties": {"a": {"items": {"anyOf": [{}, {"not": {}}]}}, "b": {"if": {}}}}
    with pytest.raises(InvalidInputError) as error:
        enforceable(schema, param="json_schema")
    place = "#/properties/a/items/anyOf/1"
    assert str(error.value) == f"JSON schema, {place}: the keyword 'not' is not supported"
    assert error.value.param == "json_schema"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": []}, "#/properties: must be an object"),
        ({"anyOf": {}}, "#/anyOf: must be an array"),
        ({"items": 3}, "#/items: must be an object or a boolean"),
        ({"$defs": {"a/~b": None}}, "#/$defs/a~1~0b: must be an object or a boolean"),
        ({"prefixItems": [{}], "items": [{}]}, "with 'prefixItems'"),
        ({"prefixItems": [{}], "additionalItems": {}}, "with 'prefixItems'"),
        (
            {"properties": {"a": {"$id": "x", "items": {"$ref": "#"}}}},
            "#/properties/a: an '$id' around a '$ref' is not supported",
        ),
        ({"properties": {"a": {"nullable": "yes"}}}, "#/properties/a/nullable: must be a boolean"),
        ({"$ref": 3}, "#/$ref: must be a string"),
        ({"$ref": "other.json#/a"}, "it must begin with '#'"),
        ({"$ref": "file:///etc/passwd"}, "it must begin with '#'"),
        ({"$ref": "#/properties/a"}, "does not lead to a schema"),
        ({"enum": [{"a": 1}], "$ref": "#/enum/0"}, "does not lead to a schema"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        enforceable(schema, param=None)
    assert message in str(error.value)


def test_references_are_found_in_every_spelling() -> None:
    for reference in ("#", "#/$defs/a~1b%20c", "#/%24defs/a~1b c", "#anchor"):
        enforceable({"$defs": {"a/b c": {"$anchor": "anchor"}}, "$ref": reference}, param=None)


def test_depth_counts_everything() -> None:
    def deep(n: int) -> dict[str, Any]:
        value: Any = 0
        for _ in range(n):
            value = [value]
        return {"const": value}

    enforceable(deep(MAX_DEPTH - 3), param=None)
    with pytest.raises(InvalidInputError, match=f"at most {MAX_DEPTH} levels"):
        enforceable(deep(MAX_DEPTH), param=None)


def test_the_deepest_schema_compiles(compiler: ConstraintCompiler) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    while True:
        deeper = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        try:
            enforceable(deeper, param=None)
        except InvalidInputError:
            break
        schema = deeper
    assert not compiler.compile(ConstraintSpec("json_schema", schema)).is_complete
