"""Host and Origin: no web page makes a server without keys work, and programs notice nothing."""

import http.client
from functools import cache
from typing import Any

import openai
import pytest
from fastapi import FastAPI
from pydantic import SecretStr, ValidationError

from server.app import create_app
from server.settings import Settings
from tests.support.asgi_client import ask
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, live_server

COMPLETIONS = "/v1/completions"
KEYS = (SecretStr("key"),)
OPEN_TO_ALL: dict[str, Any] = {"host": "0.0.0.0", "insecure_no_auth": True}
FOREIGN = [
    "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:8000",
    "evil-localhost", "localhost@evil.example", "localhost/evil", "localhost#", "localhost?x=",
    "localhost\\", "localhost:port", "localhost:", "localhost ", ":8000", "", "*", "[::1", "::1",
    "[::1]evil", "[127.0.0.1]x", "127.0.0.1:80:80", "0177.0.0.1", "127.1", "2130706433", "[::g]",
    "a/health/live?x=", "\u0131ocalhost", "localhost\0",
]  # fmt: skip


@cache
def app_with(**options: Any) -> FastAPI:
    return create_app(Settings(**options), FakeEngine().as_engine)


def status(app: FastAPI, host: str) -> int:
    return ask(app, "GET", "/v1/models", [("host", host)]).status


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_misdirected(host: str) -> None:
    answer = ask(app_with(), "GET", "/v1/models", [("host", host)])
    assert answer.status == 421
    assert answer.error["code"] == "host_not_allowed"
    assert not host.strip() or host not in answer.error["message"] or len(host) < 3
    assert status(app_with(**OPEN_TO_ALL), host) == 421


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:1", "127.8.9.1:65535", "[::1]",
     "[::1]:8000", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"],
)  # fmt: skip
def test_this_machine_has_its_names_at_every_port(host: str) -> None:
    assert status(app_with(), host) == 200
    assert status(app_with(**OPEN_TO_ALL), host) == 200, "as behind a published port"


def test_no_host_and_two_hosts_are_misdirected() -> None:
    assert ask(app_with(), "GET", "/v1/models", []).status == 421
    two = [("host", "localhost"), ("host", "localhost")]
    assert ask(app_with(), "GET", "/v1/models", two).status == 421


def test_an_address_will_do_where_others_may_come_and_a_name_must_be_said() -> None:
    assert status(app_with(), "192.168.1.5:8000") == 421
    assert status(app_with(**OPEN_TO_ALL), "192.168.1.5:8000") == 200
    assert status(app_with(**OPEN_TO_ALL), "[fe80::1]") == 200
    assert status(app_with(**OPEN_TO_ALL), "box.lan") == 421
    assert status(app_with(host="box.lan", insecure_no_auth=True), "Box.lan:8000") == 200
    named = app_with(allow_hosts=("Box.lan", "10.0.0.7"))
    assert [status(named, host) for host in ("box.LAN:1", "10.0.0.7", "localhost")] == 3 * [200]
    assert [status(named, host) for host in ("x.box.lan", "box.lan.x", "10.0.0.8")] == 3 * [421]
    assert status(app_with(allow_hosts=("*",)), "evil.example") == 200


def test_with_keys_any_host_will_do_unless_some_are_listed() -> None:
    authorized = ("authorization", "Bearer key")

    def status_of(app: FastAPI, host: str) -> int:
        return ask(app, "GET", "/v1/models", [("host", host), authorized]).status

    assert status_of(app_with(api_keys=KEYS), "evil.example") == 200
    listed = app_with(api_keys=KEYS, allow_hosts=("api.example",))
    assert status_of(listed, "api.example:443") == 200
    assert status_of(listed, "evil.example") == 421


@pytest.mark.parametrize("host", ["a/health/live?x=", "a#", "a\\", "localhost/health?"])
def test_the_host_opens_no_path(host: str) -> None:
    assert status(app_with(api_keys=KEYS), host) == 401
    answer = ask(app_with(api_keys=KEYS), "GET", "http://a/health/live", [("host", "a")])
    assert answer.status == 401, "a whole URL as the target is not an open path either"


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://localhost.evil.example", "http://localhost:8000",
     "http://127.0.0.1", "localhost", "http://localhost/", "http://localhost@evil.example",
     "file://", "chrome-extension://abc", "http://localhost http://evil.example"],
)  # fmt: skip
def test_a_foreign_page_cannot_make_the_server_work(origin: str) -> None:
    headers = [("host", "localhost"), ("origin", origin), ("content-type", "application/json")]
    answer = ask(app_with(), "POST", COMPLETIONS, headers, b"{}")
    assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in answer.headers
    assert ask(app_with(), "GET", "/v1/models", headers).status == 200, "it may not read the error"
    with_key = ask(app_with(api_keys=KEYS), "POST", COMPLETIONS, headers, b"{}")
    assert with_key.status == 401


def test_two_origins_are_foreign() -> None:
    twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")]
    assert ask(app_with(), "POST", COMPLETIONS, twice).status == 403


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8000", "http://localhost:8000"),
        ("LocalHost:8000", "http://localhost:8000"),
        ("box.lan", "https://box.lan"),
        ("localhost", "https://chat.example"),
    ],
)
def test_own_pages_and_listed_ones_may(host: str, origin: str) -> None:
    app = app_with(allow_hosts=("box.lan",), allow_origins=("https://chat.example",))
    headers = [("host", host), ("origin", origin), ("content-type", "application/json")]
    assert ask(app, "POST", COMPLETIONS, headers, b"[]").status == 400, "the body is wrong"


@pytest.mark.parametrize(
    "media_type",
    [None, "", "text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded",
     "multipart/form-data; boundary=x", "application/octet-stream", "text/plain; application/json"],
)  # fmt: skip
def test_what_a_page_may_send_without_asking_is_not_json(media_type: str | None) -> None:
    headers = [("host", "localhost")]
    if media_type is not None:
        headers.append(("content-type", media_type))
    body = b'{"model": "fake", "prompt": "x"}'
    for path in (COMPLETIONS, "/v1/chat/completions", "/tokenize", "/v1/token/decode"):
        answer = ask(app_with(), "POST", path, headers, body)
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")


def test_a_page_from_the_internet_may_ask_for_a_private_network_if_it_is_listed() -> None:
    app = app_with(allow_origins=("https://a.example",))
    wish = "access-control-request-private-network"
    allowed = "access-control-allow-private-network"

    def asked(origin: str, method: str = "POST", **headers: str) -> Answer:
        sent = [
            ("host", "localhost"),
            ("origin", origin),
            ("access-control-request-method", method),
        ]
        return ask(app, "OPTIONS", COMPLETIONS, [*sent, *headers.items()])

    answer = asked("https://a.example", **{wish: "true"})
    assert (answer.status, answer.headers[allowed]) == (200, "true")
    assert answer.headers["access-control-allow-origin"] == "https://a.example"
    assert allowed not in asked("https://a.example").headers, "nobody asked for it"
    foreign = asked("https://b.example", **{wish: "true"})
    assert foreign.status == 400
    assert allowed not in foreign.headers
    assert "allow_origins" in foreign.error["message"]
    wrong_method = asked("https://a.example", "PUT", **{wish: "true"})
    assert wrong_method.status == 400
    assert "DELETE, GET, POST" in wrong_method.error["message"]
    assert "origin" not in wrong_method.error["message"]


def test_no_page_gets_a_header_of_cors_unless_it_is_listed() -> None:
    preflight = [
        ("host", "localhost"), ("origin", "https://a.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,authorization"),
    ]  # fmt: skip

    def allowed(app: FastAPI) -> list[str]:
        headers = ask(app, "OPTIONS", COMPLETIONS, preflight).headers
        return [headers[name] for name in headers if name.startswith("access-control-allow")]

    assert allowed(app_with()) == []
    assert "https://a.example" in allowed(app_with(allow_origins=("https://a.example",)))
    assert "https://a.example" not in allowed(app_with(allow_origins=("https://b.example",)))
    everyone = app_with(allow_origins=("*",))
    assert "*" in allowed(everyone)
    answer = ask(everyone, "OPTIONS", COMPLETIONS, preflight)
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "hosts", [("http://a",), ("a:80",), ("a b",), ("",), ("a/",), ("*.example",), ("[::1",), ""]
)
def test_a_host_that_no_header_could_name_is_refused_at_the_start(hosts: Any) -> None:
    with pytest.raises(ValidationError, match="allow_hosts"):
        Settings(allow_hosts=hosts)


@pytest.mark.parametrize(
    "host",
    ["0", "0.0.0.0", "::", "[::]", "::ffff:0.0.0.0", "::ffff:192.168.1.5", "192.168.1.5", "127.1",
     "0x7f.1", "2130706433", "127.0.0.1.evil.example", "localhost.", "example.org"],
)  # fmt: skip
def test_anything_that_is_not_surely_the_loopback_needs_a_key(host: str) -> None:
    with pytest.raises(ValidationError, match="set API keys"):
        Settings(host=host)


@pytest.mark.parametrize("host", ["", " ", "127.0.0.1 ", "a/b", "\0", "http://localhost", "[::1"])
def test_an_invalid_host_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="host"):
        Settings(host=host, api_keys=KEYS)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "[::1]", "::ffff:127.0.0.1", "127.8.9.1"]
)
def test_the_loopback_needs_no_key(host: str) -> None:
    assert Settings(host=host).host == host


def test_a_name_that_stands_for_another_machine_than_it_says_is_noticed() -> None:
    with pytest.raises(ValueError, match="set API keys"):
        Settings(host="localhost").check_reach("10.0.0.5")
    Settings(host="localhost").check_reach("127.0.0.1")


def test_programs_notice_nothing() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine) as server:
        for name in ("localhost", "127.0.0.1"):
            url = f"http://{name}:{server.port}/v1"
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
                made = client.completions.create(model="fake", prompt="x", max_tokens=2)
                assert made.usage is not None
                assert made.usage.completion_tokens == 2
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.putrequest("GET", "/v1/models", skip_host=True)
        connection.putheader("host", "evil.example")
        connection.endheaders()
        assert connection.getresponse().status == 421
        connection.close()
