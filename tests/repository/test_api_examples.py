"""The examples of the published contract are answers of the bundled model, and fit the schemas."""

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from server.api.examples import ANSWERS, EXAMPLES
from server.app import create_app
from server.settings import Settings
from tests.support.fake_engine import FakeEngine

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts/api_examples.py"))
Media = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(), FakeEngine().as_engine).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, Media]]:
    """Every kind of body in either direction, and its place in the contract."""
    for name, operation in operations(document):
        if "requestBody" in operation:
            yield name, operation["requestBody"]["content"]["application/json"]
        for status, response in operation["responses"].items():
            for kind, media in response["content"].items():
                yield f"{name} {status} {kind}", media


def same(one: Any, other: Any) -> bool:
    """Equal, with numbers nearly equal: a device may round a probability in its own way."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, abs=1e-3)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_a_live_server_answers_what_is_published() -> None:
    published = json.loads(ANSWERS.read_text())
    recorded = SCRIPT["keep"](published, SCRIPT["record"]())
    for path, answers in recorded.items():
        for name, answer in answers.items():
            assert same(answer, published[path][name]), f"{path} {name}: run `make openapi`"
    assert list(recorded) == list(published)
    assert [list(answers) for answers in recorded.values()] == [
        list(answers) for answers in published.values()
    ]


def test_only_what_differs_between_runs_keeps_its_published_value() -> None:
    keep = SCRIPT["keep"]
    published = {
        "id": "cmpl-1a", "created": 1, "model": "one", "data": [{"id": "soliton-one"}],
        "timings": {"prompt_ms": 1.0, "prompt_n": 1},
    }  # fmt: skip
    recorded = {
        "id": "cmpl-2b", "created": 2, "model": "two", "data": [{"id": "soliton-two"}],
        "timings": {"prompt_ms": 2.0, "prompt_n": 2}, "more": 3,
    }  # fmt: skip
    assert keep(published, recorded) == {
        "id": "cmpl-1a", "created": 1, "model": "two", "data": [{"id": "soliton-two"}],
        "timings": {"prompt_ms": 1.0, "prompt_n": 2}, "more": 3,
    }  # fmt: skip


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    assert [name for name, media in bodies(document) if not media.get("examples")] == []


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    shared = document["components"]["examples"]
    n_checked = 0
    for name, media in bodies(document):
        schema = {**media["schema"], "components": document["components"]}
        validator = jsonschema_rs.validator_for(schema)
        for example in media["examples"].values():
            if "$ref" in example:
                example = shared[example["$ref"].removeprefix("#/components/examples/")]
            assert validator.is_valid(example["value"]), f"{name}: {example['summary']}"
            n_checked += 1
    assert n_checked > len(EXAMPLES)
