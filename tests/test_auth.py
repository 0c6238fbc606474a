"""API keys: every route but the health routes needs one, as soon as there is one."""

from collections.abc import Iterator

import pytest

from tests.fake_engine import FakeEngine
from tests.live_server import LiveServer, live_server

OPEN = {"/health", "/health/live", "/health/ready"}
COMPLETION = {"model": "fake", "prompt": "x", "max_tokens": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    keys = ("key-one", "kéy")
    with live_server(
        FakeEngine().as_engine, api_keys=keys, allow_origins=("https://a.example",)
    ) as server:
        yield server


def test_every_route_needs_a_key_but_the_health_routes(server: LiveServer) -> None:
    paths = {str(path) for path in server.app.openapi()["paths"]} | {"/openapi.json"}
    assert paths > OPEN
    for path in paths:
        for method in ("GET", "POST", "DELETE"):
            answer = server.request(method, path.replace("{model_id}", "fake"))
            if path in OPEN:
                assert answer.status in (200, 405), f"{method} {path} is open"
            else:
                assert answer.status == 401, f"{method} {path} must need a key"
                assert answer.error["code"] == "invalid_api_key"
                assert answer.error["type"] == "authentication_error"
                assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer wrong", "Basic key-one", "key-one", "Bearer key-one key-one"],
)
def test_a_wrong_key_gets_the_same_answer_as_none(server: LiveServer, header: str) -> None:
    none, wrong = server.get("/v1/models"), server.get("/v1/models", authorization=header)
    assert wrong.status == 401
    assert wrong.body == none.body


@pytest.mark.parametrize("header", ["Bearer key-one", "bearer key-one", "Bearer k\xc3\xa9y"])
def test_each_key_opens(server: LiveServer, header: str) -> None:
    assert server.get("/v1/models", authorization=header).status == 200
    assert server.post("/v1/completions", COMPLETION, authorization=header).status == 200


def test_the_path_decides_and_not_the_host_header(server: LiveServer) -> None:
    assert server.get("/v1/models", host="a/health/live?x=").status in (400, 401)


def test_an_unknown_route_tells_nothing_without_a_key(server: LiveServer) -> None:
    assert server.get("/nothing").status == 401
    assert server.get("/nothing", authorization="Bearer key-one").status == 404


def test_a_preflight_needs_no_key_and_a_foreign_origin_gets_no_header(server: LiveServer) -> None:
    ask = {"access-control-request-method": "POST"}
    ours = server.request(
        "OPTIONS", "/v1/completions", None, {"origin": "https://a.example", **ask}
    )
    assert ours.status == 200
    assert ours.headers["access-control-allow-origin"] == "https://a.example"
    foreign = server.request("OPTIONS", "/v1/completions", None, {"origin": "https://b.example"})
    assert "access-control-allow-origin" not in foreign.headers


def test_without_keys_everything_is_open_and_cors_is_off() -> None:
    with live_server(FakeEngine().as_engine) as server:
        answer = server.get("/v1/models", origin="https://a.example")
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers
