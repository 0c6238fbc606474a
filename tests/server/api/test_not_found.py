"""A path without a route: the answer names the route that was probably meant."""

import time
from collections.abc import Iterator

import pytest

from server.api.not_found import nearest_route
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

ALL = " GET /openapi.json lists all routes"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/v1/models", "/v1/models"),
        ("/v1/v1/completions", "/v1/completions"),
        ("//v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("/V1/Chat/Completions", "/v1/chat/completions"),
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/chat/completions/", "/v1/chat/completions"),
        ("/api/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/tokenizer_info", "/tokenizer_info"),
        ("/metric", "/metrics"),
        ("/v1/moderations", None),
        ("/.env", None),
        ("/wp-login.php", None),
    ],
)
def test_the_nearest_route_is_named(server: LiveServer, path: str, meant: str | None) -> None:
    answer = server.request("POST", path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    guess = ";" if meant is None else f"; did you mean {meant}?"
    assert answer.error["message"] == f"no such route{guess}{ALL}"


def test_nothing_that_was_sent_is_repeated(server: LiveServer) -> None:
    for path in ("/v1/canary/completions", "/canary", "/v1/completions%0d%0acanary", "/%ff%fe"):
        answer = server.get(path)
        assert answer.status == 404
        assert b"canary" not in answer.body
        assert answer.body.isascii()


def test_a_long_path_costs_nothing() -> None:
    routes = [f"/v1/{name}/{number}" for name in ("chat", "models") for number in range(20)]
    start = time.process_time()
    for path in ("/" * 8000, "/v1" * 2600, "/v1/chat/" * 800, "a" * 8000):
        nearest_route(path, routes)
    assert time.process_time() - start < 1.0


def test_without_the_key_no_route_is_named() -> None:
    with live_server(FakeEngine().as_engine, api_keys=("key",)) as server:
        answer = server.get("/v1/v1/models")
    assert answer.status == 401
    assert "/v1/models" not in answer.error["message"]
