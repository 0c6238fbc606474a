"""The published contract is what the app says, and what the app says is complete."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from server.app import create_app
from server.settings import Settings
from tests.fake_engine import FakeEngine
from tests.live_server import live_server

PATH = Path(__file__).parent.parent / "openapi.yaml"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(), FakeEngine().as_engine).openapi()


def test_the_published_file_is_what_the_app_says(document: dict[str, Any]) -> None:
    assert yaml.safe_load(PATH.read_text()) == document, "run `make openapi`"


def test_the_server_publishes_it_and_no_web_pages(document: dict[str, Any]) -> None:
    with live_server(FakeEngine().as_engine) as server:
        assert server.get("/openapi.json").json == document
        for path in ("/docs", "/redoc"):
            assert server.get(path).status == 404


def test_generation_routes_describe_json_events_and_every_error(document: dict[str, Any]) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        responses = document["paths"][path]["post"]["responses"]
        client = {"400", "401", "403", "404", "413", "415", "421", "429"}
        assert set(responses) == {"200", *client, "500", "503", "504"}
        assert set(responses["200"]["content"]) == {"application/json", "text/event-stream"}
        for status in set(responses) - {"200"}:
            schema = responses[status]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/ErrorResponse"}


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    components = document["components"]
    for reference in _references(document):
        kind, name = reference.removeprefix("#/components/").split("/")
        assert name in components[kind]
    assert "HTTPValidationError" not in components["schemas"], (
        "the framework's own error shape is never sent"
    )


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in _references(value)]
    if isinstance(node, list):
        return [found for value in node for found in _references(value)]
    return []
