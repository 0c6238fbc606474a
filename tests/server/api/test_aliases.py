"""Other paths of routes: they answer like the route itself, and are counted as it."""

import json
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from server.version import own_version
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server

BODY = {"model": "fake", "prompt": "x", "max_tokens": 2}
OPEN = ("/ping", "/v1/health")
CLOSED = ("/models", "/models/fake", "/version", "/completions", "/chat/completions")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


def test_a_base_url_may_lack_the_version(server: LiveServer) -> None:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        made = client.completions.create(model="fake", prompt="x", max_tokens=2)
        assert made.choices[0].text == fake_reply("x", 2)
        chat = client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "x"}], max_tokens=2, stream=True
        )
        assert {chunk.object for chunk in chat} == {"chat.completion.chunk"}
        assert [model.id for model in client.models.list()] == ["fake"]
        assert client.models.retrieve("fake").id == "fake"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other/name")


def test_what_has_another_meaning_elsewhere_is_not_an_alias(server: LiveServer) -> None:
    for path in ("/v1/completion", "/v1/v1/completions", "/completions/", "/v1/ping"):
        assert server.post(path, BODY).error["code"] == "not_found"


def test_health_and_version_are_where_other_servers_have_them(server: LiveServer) -> None:
    for path in OPEN:
        assert server.get(path).json == {"status": "ok"}
    assert server.get("/version").json == {"version": own_version()}


def test_an_alias_needs_a_key_where_its_route_does() -> None:
    with live_server(FakeEngine().as_engine, api_keys=("key",)) as server:
        for path in CLOSED:
            assert server.get(path).status == 401
            assert server.get(path, authorization="Bearer key").status in (200, 405)
        for path in OPEN:
            assert server.get(path).status == 200
        for path in (*(f"{path}/" for path in OPEN), "//ping", "/PING"):
            assert server.get(path).status == 401


def test_an_alias_counts_as_its_route_and_is_not_in_the_contract(server: LiveServer) -> None:
    for path in (*OPEN, *CLOSED):
        server.get(path)
    metrics = server.get("/metrics").body.decode()
    for path in (*OPEN, "/models", "/completions", "/chat/completions"):
        assert f'route="{path}"' not in metrics
    assert 'route="/v1/models/{model_id:path}",status="200"' in metrics
    document = json.loads(server.get("/openapi.json").body)
    assert not set(document["paths"]) & {*OPEN, *CLOSED, "/*"}
    contract = (Path(__file__).parents[3] / "openapi.yaml").read_text()
    assert "/ping" not in contract
