"""The published contract is what the app says, and what the app says is complete."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from server.app import create_app
from server.settings import Settings
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

PATH = Path(__file__).parents[3] / "openapi.yaml"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(), FakeEngine().as_engine).openapi()


def test_the_published_file_is_what_the_app_says(document: dict[str, Any]) -> None:
    assert yaml.safe_load(PATH.read_text()) == document, "run `make openapi`"


def test_the_server_publishes_it(document: dict[str, Any]) -> None:
    with live_server(FakeEngine().as_engine) as server:
        assert server.get("/openapi.json").json == document
        assert server.get("/redoc").status == 404
        assert server.post("/docs", {}).status == 405


def test_the_page_holds_all_that_it_needs(document: dict[str, Any]) -> None:
    with live_server(FakeEngine().as_engine) as server:
        answer = server.get("/docs")
        again = server.request("HEAD", "/docs")
    assert answer.status == again.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.body.decode()
    held = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    assert [attributes for attributes, _ in held] == [' type="application/json" id="contract"', ""]
    assert json.loads(held[0][1]) == document
    styles = re.findall(r"<style>(.*?)</style>", page, re.S)
    policy = answer.headers["content-security-policy"]
    for directive, text in (("style-src", styles[0]), ("script-src", held[1][1])):
        source = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{source}';" in policy
    assert policy.startswith("default-src 'none'; ")
    outside = page.replace(held[0][1], "")
    assert re.findall(r"https?://[^\s'\"`]+", outside) == ["http://127.0.0.1:8000"], (
        "the only address in it is the one that it shows"
    )
    assert not re.search(r"\b(?:src|@import|innerHTML|fetch|eval)\b", outside)


def test_with_keys_the_documents_need_one() -> None:
    with live_server(FakeEngine().as_engine, api_keys=("key",)) as server:
        for path in ("/openapi.json", "/docs"):
            assert server.get(path).status == 401
            assert server.get(path, authorization="Bearer key").status == 200


def test_a_stream_is_described_event_by_event(document: dict[str, Any]) -> None:
    for path, chunk in (
        ("/v1/completions", "Completion"),
        ("/v1/chat/completions", "ChatCompletionChunk"),
    ):
        media = document["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"]
        assert media["schema"]["type"] == "string"
        event, end = media["x-itemSchema"]["oneOf"]
        data = event["properties"]["data"]
        assert data["contentMediaType"] == "application/json"
        names = [one["$ref"].rpartition("/")[2] for one in data["contentSchema"]["oneOf"]]
        assert names == [chunk, "ErrorResponse"]
        assert end["properties"] == {"data": {"const": "[DONE]"}}
        schema = {**data["contentSchema"], "components": document["components"]}
        validator = jsonschema_rs.validator_for(schema)
        for name, example in media["examples"].items():
            events = parse_event_stream(example["value"].encode())
            assert (events.data[-1] == "[DONE]") == (name != "engine_error")
            for one in events.chunks:
                validator.validate(one)


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
