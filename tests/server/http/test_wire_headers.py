"""Headers of answers and of errors, and errors made outside the routes."""

import http.client
import json
import re

import openai
import pytest

from engine import NumericsError
from server.errors import UnavailableError, error_response
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server, read_answer, wait_until

COMPLETIONS = "/v1/completions"
BODY = {"model": "fake", "prompt": "x", "max_tokens": 2}


def test_every_answer_has_an_id_of_its_own_and_says_how_long_it_took() -> None:
    with live_server(FakeEngine().as_engine) as server:
        answers = [
            server.get("/health"),
            server.get("/nothing"),
            server.post(COMPLETIONS, BODY),
            server.post(COMPLETIONS, {**BODY, "stream": True}),
            server.post(COMPLETIONS, b"{"),
        ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == len(answers)
    assert all(int(answer.headers["openai-processing-ms"]) >= 0 for answer in answers)


def test_an_id_of_the_client_is_kept() -> None:
    own = "trace-1:Az/09+=._~,{x}"
    with live_server(FakeEngine().as_engine, api_keys=("key",)) as server:
        answers = [
            server.get("/health", **{"x-request-id": own}),
            server.get("/nothing", **{"x-request-id": own}),  # 401
            server.post(COMPLETIONS, BODY, authorization="Bearer key", **{"X-Request-ID": own}),
            server.post(COMPLETIONS, b"{", authorization="Bearer key", **{"x-request-id": own}),
            server.get("/health", **{"x-request-id": "x" * 128}),
        ]
    assert [answer.headers["x-request-id"] for answer in answers] == [own] * 4 + ["x" * 128]


@pytest.mark.parametrize(
    "sent",
    [
        b"x-request-id:",
        b"x-request-id: a b",
        b"x-request-id: a\tb",
        b"x-request-id: " + b"x" * 129,
        b"x-request-id: \xc3\xa9",
        b"x-request-id: \x9b31m",
        b"x-request-id: a\r\nx-request-id: a",
        b"x-request-id: a\r\nX-Request-Id: b",
        b"request-id: a",
    ],
)
def test_any_other_id_is_replaced(sent: bytes) -> None:
    with live_server(FakeEngine().as_engine) as server, server.connect() as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + sent + b"\r\n\r\n")
        answer = read_answer(sock)
    assert answer.status == 200
    assert re.fullmatch("req_[0-9a-f]{32}", answer.headers["x-request-id"])


def test_the_id_leads_to_the_line_of_an_error(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine) as server:
        fake.model.faults[0] = ValueError("broken")
        answer = server.post(COMPLETIONS, BODY, **{"x-request-id": "mine-1"})
    assert (answer.status, answer.headers["x-request-id"]) == (500, "mine-1")
    assert "the engine failed in request mine-1" in caplog.messages


def test_the_official_client_waits_as_long_as_asked_and_comes_back() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine, max_queue=0) as server:
        fake.model.decode_gate.clear()
        with (
            server.send(COMPLETIONS, BODY),
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client,
        ):
            wait_until(fake.model.in_decode.is_set)
            with pytest.raises(openai.RateLimitError) as refused:
                client.completions.create(model="fake", prompt="x")
            assert refused.value.code == "queue_full"
            assert refused.value.request_id
            headers = refused.value.response.headers
            wait = float(headers["retry-after-ms"]) / 1000
            assert 1.0 <= wait <= float(headers["retry-after"]) < wait + 1.0
            fake.model.decode_gate.set()


def test_what_would_fail_again_is_not_retried() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine) as server:
        fake.model.faults[0] = NumericsError("NaN")
        with (
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=2) as client,
            pytest.raises(openai.InternalServerError) as failed,
        ):
            client.completions.create(model="fake", prompt="x")
        assert failed.value.code == "engine_numerics"
        assert fake.model.n_prompts == 1, "once"


def test_a_server_that_ends_says_when_to_come_back() -> None:
    error = UnavailableError("the server is shutting down")
    waits = [float(error_response(error).headers["retry-after-ms"]) for _ in range(40)]
    assert all(2000 <= wait <= 3000 for wait in waits)
    assert len(set(waits)) > 10, "clients refused together do not come back together"


def test_what_is_not_http_gets_the_envelope() -> None:
    with live_server(FakeEngine().as_engine) as server, server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nbad header line\r\n\r\n")
        response = http.client.HTTPResponse(sock)
        response.begin()
        assert response.status == 400
        error = json.loads(response.read())["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == "invalid_http"
        assert sock.recv(1) == b"", "and the connection ends"


def test_a_refused_preflight_gets_the_envelope() -> None:
    with live_server(FakeEngine().as_engine, allow_origins=("https://a.example",)) as server:
        asked = {"origin": "https://b.example", "access-control-request-method": "POST"}
        answer = server.request("OPTIONS", COMPLETIONS, None, asked)
        assert answer.status == 400
        assert answer.error["type"] == "invalid_request_error"
        assert "access-control-allow-origin" not in answer.headers
        answer = server.get("/health", origin="https://a.example")
        exposed = answer.headers["access-control-expose-headers"]
        assert {"x-request-id", "retry-after-ms", "x-should-retry"} <= set(exposed.split(", "))


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PATCH", "BREW"])
def test_other_methods_are_named_with_the_right_one(method: str) -> None:
    with live_server(FakeEngine().as_engine) as server:
        answer = server.request(method, COMPLETIONS)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        if method != "HEAD":
            assert answer.error["code"] == "method_not_allowed"


def test_a_browser_may_read_why_its_body_was_refused() -> None:
    origin = "https://a.example"
    engine = FakeEngine().as_engine
    with live_server(engine, allow_origins=(origin,), max_body_bytes=1024) as server:
        answer = server.post("/v1/completions", b" " * 2000, origin=origin)
    assert answer.status == 413
    assert answer.headers["access-control-allow-origin"] == origin
