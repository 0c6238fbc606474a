"""API keys: once there is one, every route needs one but the page and the health routes."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import SecretStr, ValidationError
from starlette.responses import JSONResponse

from server.api.anthropic import errors as anthropic
from server.api.llama import errors as llama
from server.api.ollama import errors as ollama
from server.api.tabby import errors as tabby
from server.app import create_app
from server.http.auth import KeyGate
from server.settings import Settings
from tests.support.asgi_client import HERE, Headers, ask, asked, paths_of
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

# These differ between any two answers.
OWN = {"x-request-id", "request-id", "openai-processing-ms", "date"}
# Wires with errors in a shape of their own, by how their paths begin.
# Each says whether a path belongs to a wire whose errors have a shape of their own.
WIRES = (anthropic, llama, ollama, tabby)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
WRONG: list[Headers] = [
    [],
    *(
        [("authorization", value)]
        for value in (
            "", "Bearer", "Bearer ", "Bearer wrong", "bearer wrong", "Bearer key-on",
            "Bearer key-one2", "Bearer key-one key-one", "Basic key-one", "key-one",
            "Bearerkey-one",
            "Bearer k\u00e9y".encode("latin-1"), "Bearer key\uff0done", b"Bearer key-one\0",
            b"Bearer \xff\xfe", b"Bearer " + bytes(range(256)), "Bearer 'key-one'", "Bearer %s%n",
            "Bearer " + 2**20 * "x",
        )
    ),
    [("authorization", "Bearer key-one"), ("authorization", "Bearer key-one")],
    [("authorization", "Bearer key-one"), ("authorization", "Bearer wrong")],
    [("x-api-key", "")],
    [("x-api-key", "wrong")],
    [("x-api-key", "Bearer key-one")],
    [("x-api-key", "key-one"), ("x-api-key", "key-one")],
    [("authorization", "Bearer wrong"), ("x-api-key", "key-one")],
    [("authorization", ""), ("x-api-key", "key-one")],
    [("cookie", "authorization=Bearer key-one")],
]  # fmt: skip
OPEN = {"/", "/ui", "/ui/", "/ui/{name}", "/health", "/health/live", "/health/ready"}
COMPLETION = {"model": "fake", "prompt": "x", "max_tokens": 1}


def protected_app() -> FastAPI:
    return create_app(Settings(api_keys=secrets("key-one", "k\u00e9y")), FakeEngine().as_engine)


def secrets(*keys: str) -> tuple[SecretStr, ...]:
    return tuple(map(SecretStr, keys))


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    keys = ("key-one", "kéy")
    with live_server(
        FakeEngine().as_engine, api_keys=keys, allow_origins=("https://a.example",)
    ) as server:
        yield server


async def test_every_route_refuses_every_wrong_authorization_in_one_way() -> None:
    app = protected_app()
    paths = [path for path, _ in paths_of(app.routes)]
    assert {"/v1/chat/completions", "/metrics", "/openapi.json", "/docs", *OPEN} <= set(paths)
    refusals: dict[str, set[tuple[bytes, str]]] = {}
    for path, method, headers in product([*paths, "/nothing"], METHODS, WRONG):
        answer = await asked(app, method, path, headers)
        if path in OPEN:
            assert answer.status in (200, 307, 404, 405, 503), f"{method} {path} is open"
            assert answer.status != 200 or method in ("GET", "HEAD"), "it only reports"
            continue
        assert answer.status == 401, f"{method} {path} must need a key"
        stable = {name: answer.headers[name] for name in sorted(answer.headers.keys() - OWN)}
        stable.pop("content-length")  # of an answer that has the id in its body
        body = answer.body.replace(answer.headers["x-request-id"].encode(), b"")
        wire = next((each.__name__ for each in WIRES if each.is_of_this_wire(path)), "")
        refusals.setdefault(wire, set()).add((body, str(stable)))
    assert [len(each) for each in refusals.values()] == [1] * (1 + len(WIRES)), (
        "the answers do not reveal a route, a method or a wrong key"
    )
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.error["code"] == "invalid_api_key"


async def test_a_route_added_later_needs_a_key() -> None:
    app = protected_app()
    app.add_route("/new", lambda _: JSONResponse("new"))
    assert (await asked(app, "GET", "/new")).status == 401
    assert (await asked(app, "GET", "/", type_="websocket")).status == 401
    assert (await asked(app, "GET", "/new", [("authorization", "Bearer key-one")])).json == "new"


@pytest.mark.parametrize(
    "path",
    ["//health", "/health/", "/health/live/../../v1/models", "/v1/models?/health", "/HEALTH"],
)
def test_what_resembles_an_open_path_is_closed(path: str) -> None:
    assert ask(protected_app(), "GET", path).status == 401


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


def test_a_key_may_come_in_the_header_of_other_apis(server: LiveServer) -> None:
    sent = {"x-api-key": "key-one"}
    assert server.get("/v1/models", **sent).status == 200
    assert server.post("/v1/completions", COMPLETION, **sent).status == 200
    both = {"authorization": "Bearer key-one", "x-api-key": "unused"}
    assert server.get("/v1/models", **both).status == 200, "authorization alone counts"


def test_the_path_decides_and_not_the_host_header(server: LiveServer) -> None:
    assert server.get("/v1/models", host="a/health/live?x=").status in (400, 401)


def test_an_unknown_route_reveals_nothing_without_a_key(server: LiveServer) -> None:
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


@pytest.mark.parametrize("key", ["\u00e0", "\u4e0d\u8981", "sk-1'\"%\\;--", "x" * 4096])
def test_a_key_may_be_any_text_without_white_space(key: str) -> None:
    app = create_app(Settings(api_keys=secrets(key)), FakeEngine().as_engine)
    assert ask(app, "GET", "/v1/models", [("authorization", f"Bearer {key} ")]).status == 200
    assert ask(app, "GET", "/v1/models", [("authorization", f"Bearer {key}x")]).status == 401


@pytest.mark.parametrize("keys", ["", " , ", ("",), ("a b",), ("a\n",), ("a\0",), (" a",)])
def test_a_key_that_cannot_be_sent_is_refused_at_the_start(keys: Any) -> None:
    with pytest.raises(ValidationError, match="api_keys"):
        Settings(api_keys=keys)


@pytest.mark.parametrize("n_keys", [0, 1, 2])
def test_callers_are_told_apart_by_key_once_there_are_two(n_keys: int) -> None:
    keys = [f"key-{number}" for number in range(n_keys)]
    app = create_app(Settings(api_keys=secrets(*keys)), FakeEngine().as_engine)
    app.add_route("/caller", lambda request: JSONResponse(request.state.caller))
    sent = [f"Bearer {key}" for key in keys] or ["none"]
    callers = [
        ask(app, "GET", "/caller", [*HERE, ("authorization", header)]).json for header in sent
    ]
    if n_keys < 2:
        assert set(callers) == {""}
    else:
        assert len(set(callers)) == n_keys
        assert all(len(caller) == 12 and int(caller, 16) >= 0 for caller in callers)


def test_all_keys_are_compared_whichever_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return left == right

    monkeypatch.setattr("server.http.auth.hmac.compare_digest", compare)
    gate = KeyGate(FastAPI(), api_keys=secrets("one", "two", "three"))
    for key in ("one", "two", "three", "four"):
        compared.clear()
        gate.caller({"headers": [(b"authorization", f"Bearer {key}".encode())]})
        assert compared == [(32, 32)] * 3, "digests of one length, and each of them"
