"""Requests drawn from the published contract, right ones and wrong ones, against a live server: no
answer is a 5xx, and every status, media type, header, body and event is one that is documented.

Cases depend on the contract alone: the same file gives the same cases. schemathesis draws them and
reads answers, but for the events of a stream, which are checked here.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema_rs
import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.event_stream import parse_event_stream
from tests.fake_engine import FakeEngine
from tests.live_server import LiveServer, live_server

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]
Case: TypeAlias = schemathesis.Case[Operation]

CONTRACT = Path(__file__).parent.parent / "openapi.yaml"
N_CASES = 2000
N_PATHS = 40  # of routes without a body, whose paths and queries are few
N_BODIES = {"generation": 400, "tokens": 40}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
]
# What right requests hold, so that many reach the engine and none keeps it long.
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
MESSAGES = {
    "type": "array",
    "minItems": 1,
    "maxItems": 3,
    "items": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"role": {"const": "user"}, "content": TEXT},
                "required": ["role", "content"],
                "additionalProperties": False,
            },
            {"$ref": "#/components/schemas/Message"},
        ]
    },
}
SHORT = {
    "model": {"enum": ["fake"]},
    "max_tokens": {"type": "integer", "minimum": 0, "maximum": 8},
    "n": {"type": "integer", "minimum": 1, "maximum": 2},
    "best_of": {"type": "integer", "minimum": 1, "maximum": 2},
}
NARROWED: dict[str, dict[str, Any]] = {
    "CompletionRequest": {**SHORT, "prompt": PROMPT},
    "ChatCompletionRequest": {**SHORT, "messages": MESSAGES},
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
    """Objects of requests are closed: unknown fields belong to the wrong cases."""
    document: dict[str, Any] = yaml.load(CONTRACT.read_text(), yaml.CSafeLoader)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if schema.get("additionalProperties") is True:
            schema["additionalProperties"] = False
    for name, fields in NARROWED.items():
        known = schemas[name]["properties"]
        known.update({field: fields[field] for field in fields if field in known})
    schemas["CompletionRequest"]["required"] = ["model", "prompt"]
    return document


def operations() -> list[Operation]:
    schema: Any = schemathesis.openapi.from_dict(narrowed_contract())
    return [found.ok() for found in schema.get_all_operations()]


def drawn(operation: Operation, mode: GenerationMode, n: int) -> list[Case]:
    cases: list[Case] = []

    @settings(
        max_examples=n,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases


def all_cases() -> Iterator[Case]:
    for operation in operations():
        if operation.body:
            n = N_BODIES[(operation.tags or [""])[0]]
            right = drawn(operation, GenerationMode.POSITIVE, n)
            for index, case in enumerate(right):
                if index % 3 == 0 and isinstance(case.body, dict):
                    case.body["stream"] = True
            yield from right
            yield from drawn(operation, GenerationMode.NEGATIVE, n)
        else:
            yield from drawn(operation, GenerationMode.POSITIVE, N_PATHS)


def wrong_with(answer: requests.Response, case: Case) -> str | None:
    """What the contract does not say of this answer."""
    streamed = answer.headers.get("content-type", "").startswith("text/event-stream")
    checks = CHECKS if streamed else [*CHECKS, response_schema_conformance]
    try:
        case.validate_response(answer, checks=checks)
        if streamed:
            check_events(answer.content, case)
    except (AssertionError, ExceptionGroup, jsonschema_rs.ValidationError) as error:
        return f"{error}\n{case.as_curl_command()}"
    return None


@cache
def event_schema(path: str) -> jsonschema_rs.Validator:
    responses = contract()["paths"][path]["post"]["responses"]
    schema = responses["200"]["content"]["text/event-stream"]["schema"]
    return jsonschema_rs.validator_for({**schema, "components": contract()["components"]})


def check_events(body: bytes, case: Case) -> None:
    parsed = parse_event_stream(body)
    for chunk in parsed.chunks:
        event_schema(case.path).validate(chunk)
    ended_well = parsed.data[-1] == "[DONE]"
    assert ended_well != ("error" in parsed.chunks[-1]), "a stream ends with [DONE] or an error"


@pytest.fixture
def server() -> Iterator[LiveServer]:
    fake = FakeEngine(max_seq_len=1024)
    fake.model.script = b"caf\xc3\xa9 \xf0\x9f\xa7\x80 and more"
    with live_server(fake.as_engine) as server:
        yield server


@pytest.mark.timeout(300)
def test_every_answer_is_as_the_contract_says(server: LiveServer) -> None:
    answers: list[requests.Response] = []
    faults: list[str] = []
    with requests.Session() as session:
        for case in all_cases():
            answer = session.request(**case.as_transport_kwargs(base_url=server.url))
            answers.append(answer)
            faults += filter(None, [wrong_with(answer, case)])
    assert not faults, f"{len(faults)} of {len(answers)}:\n\n" + "\n\n".join(faults[:5])
    assert len(answers) >= N_CASES
    served = [answer for answer in answers if answer.status_code == 200]
    streams = [answer for answer in served if "event-stream" in answer.headers["content-type"]]
    assert len(served) >= N_CASES / 10, "too few cases reach the engine"
    assert len(streams) >= N_CASES / 50, "too few are streamed"
