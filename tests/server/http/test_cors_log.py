"""The log names the origin of a web page that was refused, and the option that would allow it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

COMPLETIONS = "/v1/completions"
BODY = {"prompt": "x", "max_tokens": 1}
PAGE = "http://localhost:3000"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type",
}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "server.http.cors")
    return caplog


@contextmanager
def serving(**options: Any) -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine, **options) as server:
        yield server


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in log.records if one.name == "server.http.cors"]


def preflight(server: LiveServer, origin: str = PAGE) -> Answer:
    return server.request("OPTIONS", COMPLETIONS, headers={"origin": origin, **PREFLIGHT})


def test_a_preflight_without_the_option(log: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        assert preflight(server).status == 405
    [record] = [one for one in log.records if one.name == "server.http.cors"]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"a web page from {PAGE} was refused (CORS): to allow it, start with --allow-origins {PAGE}"
    )


def test_a_preflight_with_another_origin_allowed(log: pytest.LogCaptureFixture) -> None:
    with serving(allow_origins=("https://a.example",)) as server:
        assert preflight(server).status == 400
        assert preflight(server, "https://a.example").status == 200
    [line] = lines(log)
    assert line.endswith(f"start with --allow-origins https://a.example,{PAGE}")


def test_a_preflight_to_a_server_with_keys(log: pytest.LogCaptureFixture) -> None:
    with serving(api_keys=("key",)) as server:
        assert preflight(server).status == 401
    assert len(lines(log)) == 1


@pytest.mark.parametrize("options", [{}, {"allow_origins": ("https://a.example",)}])
def test_a_simple_request(log: pytest.LogCaptureFixture, options: dict[str, Any]) -> None:
    with serving(**options) as server:
        assert server.get("/v1/models", origin=PAGE).status == 200, "the browser hides the answer"
        [line] = lines(log)
        assert f"from {PAGE} was refused" in line
        assert server.post(COMPLETIONS, BODY, origin="https://b.example").status == 403
        assert "from https://b.example was refused" in lines(log)[1]


def test_the_option_in_the_line_works(log: pytest.LogCaptureFixture) -> None:
    for page in (PAGE, "null"):
        with serving(allow_origins=(page,)) as server:
            for answer in (preflight(server, page), server.get("/v1/models", origin=page)):
                assert answer.status == 200
                assert answer.headers["access-control-allow-origin"] == page
    with serving(allow_origins=("*",)) as server:
        assert preflight(server).headers["access-control-allow-origin"] == "*"
    assert lines(log) == []


def test_a_page_opened_as_a_file(log: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        preflight(server, "null")
    [line] = lines(log)
    assert "such as a file opened in a browser, was refused (CORS): --allow-origins null" in line


def test_each_origin_is_named_once(log: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        for _ in range(3):
            preflight(server)
            preflight(server, PAGE.upper())
            server.get("/v1/models", origin=PAGE)
            server.post(COMPLETIONS, BODY, origin=PAGE)
    assert len(lines(log)) == 1


def test_the_number_and_length_of_lines_are_limited(log: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        for number in range(40):
            preflight(server, f"https://{number:04}{240 * 'x'}.example")
    said = lines(log)
    assert len(said) == 17
    assert all(len(line) < 700 for line in said)
    assert "more origins" in said[-1]
    assert "xxx" not in said[-1]


@pytest.mark.parametrize(
    "origin",
    [
        "", "evil", "https://", "https://a b", "https://a/x", "https://a\x1b[31m", "https://a,b",
        "https://a%0aINFO", "https://é", f"https://{300 * 'x'}", "https://a:123456", "nullnull",
        "javascript:alert(1)", "https://a;--api-keys=", "https://$(id)", "https://a'", "null\tx",
    ],
)  # fmt: skip
def test_nothing_but_an_origin_is_logged(log: pytest.LogCaptureFixture, origin: str) -> None:
    with serving() as server:
        for answer in (
            server.request("OPTIONS", COMPLETIONS, headers={"origin": origin, **PREFLIGHT}),
            server.post(COMPLETIONS, BODY, origin=origin),
        ):
            assert answer.status in (400, 403, 405)
    assert lines(log) == []


def test_two_origins_are_not_a_browsers(log: pytest.LogCaptureFixture) -> None:
    with serving() as server, server.connect() as sock:
        origins = b"origin: https://a.example\r\norigin: https://b.example\r\n"
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n" + origins + b"\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"
    assert lines(log) == []


def test_pages_that_were_not_refused_are_not_named(log: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        own = {"origin": f"http://localhost:{server.port}", "host": f"localhost:{server.port}"}
        assert server.get("/v1/models").status == 200
        assert server.post(COMPLETIONS, BODY, **own).status == 200
        # A form of a foreign page: no option is needed for what it may do, and none would help.
        form = {"sec-fetch-mode": "navigate", "sec-fetch-site": "cross-site"}
        assert server.post(COMPLETIONS, BODY, origin=PAGE, **form).status == 403
        assert server.get("/v1/models", origin=PAGE, host="evil.example").status == 421
    with serving(api_keys=("key",)) as server:
        # A page of the same name as a proxy that sends another Host.
        proxied = {"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin", "x-api-key": "key"}
        assert (
            server.post(COMPLETIONS, BODY, origin="https://chat.example", **proxied).status == 200
        )
    assert lines(log) == []
