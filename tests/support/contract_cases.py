"""Requests drawn from the published contract, valid and invalid, and whether an answer is one that
the contract documents: its status, media type, headers, body and events.

Cases depend only on the contract and a seed: the same file gives the same cases. schemathesis draws
them and checks the answers, except for the events of a stream, which are checked here.
"""

import importlib.metadata
import itertools
import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import jsonschema_rs
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.event_stream import parse_event_stream
from tests.support.kept import kept

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
Case: TypeAlias = schemathesis.Case[Operation]

CONTRACT = Path(__file__).parents[2] / "openapi.yaml"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
]
# What a case is made of, and the packages that decide which cases are drawn.
PARTS = ("method", "path_parameters", "headers", "cookies", "query", "body", "media_type")
DRAWN_BY = ("hypothesis", "schemathesis", "jsonschema-rs")
# What valid requests contain, so that many reach the engine and none keeps it busy for long.
TEXT = {"type": "string", "minLength": 1, "maxLength": 40}
IDS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 255},
    "minItems": 1,
    "maxItems": 20,
}
PROMPT = {
    "anyOf": [
        TEXT,
        IDS,
        {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2},
        {"type": "array", "items": IDS, "minItems": 1, "maxItems": 2},
    ]
}


def turns(other: str) -> dict[str, Any]:
    """One to three of them: plain ones of the user, or what the schema `other` says."""
    plain = {
        "type": "object",
        "properties": {"role": {"const": "user"}, "content": TEXT},
        "required": ["role", "content"],
        "additionalProperties": False,
    }
    items = {"anyOf": [plain, {"$ref": f"#/components/schemas/{other}"}]}
    return {"type": "array", "minItems": 1, "maxItems": 3, "items": items}


MESSAGES = turns("Message")
INPUT = {"anyOf": [TEXT, turns("InputItem")]}
SHORT = {
    "model": {"enum": ["fake"]},
    "max_tokens": {"type": "integer", "minimum": 0, "maximum": 8},
    "n": {"type": "integer", "minimum": 1, "maximum": 2},
    "best_of": {"type": "integer", "minimum": 1, "maximum": 2},
}
NARROWED: dict[str, dict[str, Any]] = {
    "CompletionRequest": {**SHORT, "prompt": PROMPT},
    "LlamaCompletionRequest": {**SHORT, "prompt": PROMPT},
    "ChatCompletionRequest": {**SHORT, "messages": MESSAGES},
    "ResponsesRequest": {
        **SHORT,
        "max_output_tokens": {"type": "integer", "minimum": 0, "maximum": 8},
        "input": INPUT,
        # What would refer to something that the request cannot know.
        "previous_response_id": {"type": "null"},
        "store": {"enum": [False]},
    },
    "CountInputRequest": {
        "model": {"enum": ["fake"]},
        "input": INPUT,
        "previous_response_id": {"type": "null"},
    },
    "ScoreRequest": {
        "model": {"enum": ["fake"]},
        "prompt": {"anyOf": [TEXT, IDS]},
        "messages": MESSAGES,
        "continuations": {
            "anyOf": [
                {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
                {"type": "array", "items": IDS, "minItems": 1, "maxItems": 3},
            ]
        },
    },
    "TokenizeRequest": {"model": {"enum": ["fake"]}, "messages": MESSAGES},
    "TemplateRequest": {"model": {"enum": ["fake"]}, "messages": MESSAGES},
    "DetokenizeRequest": {"tokens": IDS},
    "TokenDecodeRequest": {"tokens": IDS},
}


@cache
def contract() -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(CONTRACT.read_text(), yaml.CSafeLoader)
    return document


def narrowed_contract() -> dict[str, Any]:
    """Objects in requests are closed, so an unknown field makes a request invalid."""
    document: dict[str, Any] = yaml.load(CONTRACT.read_text(), yaml.CSafeLoader)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if schema.get("additionalProperties") is True:
            schema["additionalProperties"] = False
    for name, fields in NARROWED.items():
        known = schemas[name]["properties"]
        known.update({field: fields[field] for field in fields if field in known})
    for name in ("CompletionRequest", "LlamaCompletionRequest"):
        schemas[name]["required"] = ["model", "prompt"]
    # Without it a text goes on up to the end of the context.
    schemas["LlamaCompletionRequest"]["required"] += ["max_tokens"]
    return document


@cache
def operations() -> list[Operation]:
    schema: Any = schemathesis.openapi.from_dict(narrowed_contract())
    return [found.ok() for found in schema.get_all_operations()]


def drawn(operation: Operation, mode: GenerationMode, n: int) -> list[Case]:
    """`n` cases or a few less, always the same ones. Drawing them takes longer than sending them,
    so they are kept until the contract or a package that draws them changes.
    """

    def draw_into(place: Path) -> None:
        cases: list[Case] = []
        draw(operation, mode, n, cases.append)
        parts = [
            {name: part for name in PARTS if (part := getattr(case, name)) is not NOT_SET}
            for case in cases
        ]
        (place / "cases").write_bytes(pickle.dumps(parts))

    name = re.sub(r"\W+", "-", f"cases {operation.label} {mode.value}")
    versions = [f"{package} {importlib.metadata.version(package)}" for package in DRAWN_BY]
    place = kept(name, [CONTRACT, Path(__file__), f"{n} cases", *versions], draw_into)
    parts = pickle.loads((place / "cases").read_bytes())
    return [operation.Case(**each) for each in parts]


def draw(
    operation: Operation,
    mode: GenerationMode,
    n: int,
    take: Callable[[Case], None],
    *,
    seed: int | None = None,
) -> None:
    """Hands `n` cases or a few less to `take`, the same ones for the same seed. Every third valid
    one with a body asks for a stream.
    """
    numbers = itertools.count()

    @settings(
        max_examples=n,
        derandomize=seed is None,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def hand_out(case: Case) -> None:
        is_third = next(numbers) % 3 == 0
        if mode is GenerationMode.POSITIVE and is_third and isinstance(case.body, dict):
            case.body["stream"] = True
        take(case)

    (hand_out if seed is None else hypothesis.seed(seed)(hand_out))()


def covering(operation: Operation) -> Iterator[Case]:
    """One case for each limit and each keyword of the operation's schemas, kept and broken."""
    schema = operation.schema
    for case in schema.iter_coverage_cases(
        operation,
        generation_modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE],
        generation_config=schema.config.generation,
    ):
        if case.method.upper() == operation.method.upper():
            yield case


def wrong_with(answer: requests.Response, case: Case) -> str | None:
    """What this answer has that the contract does not document."""
    media_type = answer.headers.get("content-type", "")
    streamed = media_type.startswith(("text/event-stream", "application/x-ndjson"))
    checks = CHECKS if streamed else [*CHECKS, response_schema_conformance]
    try:
        case.validate_response(answer, checks=checks)
        if media_type.startswith("application/x-ndjson"):
            check_lines(answer.content, case)
        elif streamed:
            check_events(answer.content, case)
    except (AssertionError, ExceptionGroup, jsonschema_rs.ValidationError) as error:
        return f"{error}\n{case.as_curl_command()}"
    return None


@cache
def event_schema(path: str) -> jsonschema_rs.Validator:
    responses = contract()["paths"][path]["post"]["responses"]
    item = responses["200"]["content"]["text/event-stream"]["x-itemSchema"]
    schema = item["oneOf"][0]["properties"]["data"]["contentSchema"]
    return jsonschema_rs.validator_for({**schema, "components": contract()["components"]})


@cache
def line_schema(path: str) -> jsonschema_rs.Validator:
    responses = contract()["paths"][path]["post"]["responses"]
    schema = responses["200"]["content"]["application/x-ndjson"]["x-itemSchema"]
    return jsonschema_rs.validator_for({**schema, "components": contract()["components"]})


def check_lines(body: bytes, case: Case) -> None:
    lines = [json.loads(line) for line in body.splitlines()]
    for line in lines:
        line_schema(case.path).validate(line)
    last = lines[-1]
    assert last.get("done") or "error" in last, "a stream ends with its end or an error"


def check_events(body: bytes, case: Case) -> None:
    parsed = parse_event_stream(body)
    for chunk in parsed.chunks:
        event_schema(case.path).validate(chunk)
    last = parsed.chunks[-1]
    if case.path in ("/completion", "/infill"):
        chooses = isinstance(case.body, dict) and case.body.get("response_fields")
        assert last.get("stop") is True or "error" in last or chooses, (
            "a stream ends with its stop or an error"
        )
        return
    if case.path == "/v1/responses":
        ends = ("completed", "incomplete", "failed")
        assert last["type"] in ("error", *(f"response.{end}" for end in ends)), (
            "a stream ends with the state of the response or an error"
        )
        return
    if case.path == "/v1/messages":
        assert last["type"] in ("message_stop", "error"), "a stream ends with its stop or an error"
        return
    ended_well = parsed.data[-1] == "[DONE]"
    assert ended_well != ("error" in last), "a stream ends with [DONE] or an error"
