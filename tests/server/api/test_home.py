"""GET /: a page for browsers, JSON for programs, and nothing about the model when keys are set."""

import html
import re
import subprocess
from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from engine import Engine
from server.app import create_app
from server.settings import Settings
from server.version import own_version
from tests.support.asgi_client import ask
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"
SUMMARY = {
    "name": "soliton",
    "version": own_version(),
    "model": "fake",
    "docs": "/docs",
    "openapi": "/openapi.json",
}


def home(server: LiveServer, accept: str = BROWSER, **headers: str) -> Answer:
    return server.get("/", accept=accept, **headers)


def command_of(answer: Answer, number: int = 0) -> str:
    """A command as the page shows it."""
    code = re.findall(r"<pre[^>]*><code>(.*?)</code>", answer.body.decode(), re.S)[number]
    return html.unescape(re.sub(r"<[^>]+>", "", code))


def run(command: str) -> str:
    return subprocess.run(
        ["sh", "-c", f"{command} -sS"], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "accept",
    [BROWSER, "text/html", "TEXT/HTML;q=0.2", "text/*", "*/*;q=0.1,text/html", "text/html, a;q=x"],
)
def test_a_client_that_prefers_html_gets_the_page(shared_server: LiveServer, accept: str) -> None:
    answer = home(shared_server, accept)
    assert (answer.status, answer.headers["vary"]) == (200, "accept")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert len(answer.body) < 15_000


@pytest.mark.parametrize(
    "accept",
    [
        "*/*", "", "application/json", "application/json, text/html;q=0.9", "text/html;q=0", ";;,=",
        "text/html;q=x", "image/png",
    ],
)  # fmt: skip
def test_another_client_gets_json(shared_server: LiveServer, accept: str) -> None:
    answer = home(shared_server, accept)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["vary"] == "accept"
    assert answer.json == SUMMARY
    for name in ("docs", "openapi"):
        assert shared_server.get(answer.json[name]).status == 200


def test_head_is_answered_without_a_body_and_post_is_not(shared_server: LiveServer) -> None:
    for accept in (BROWSER, "*/*"):
        head = shared_server.request("HEAD", "/", headers={"accept": accept})
        whole = home(shared_server, accept)
        assert (head.status, head.body) == (200, b"")
        for name in ("content-length", "content-type"):
            assert head.headers[name] == whole.headers[name]
    post = shared_server.post("/", {})
    assert (post.status, post.error["code"]) == (405, "method_not_allowed")


def test_the_page_holds_all_that_it_needs(shared_server: LiveServer) -> None:
    answer = home(shared_server)
    page = answer.body.decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "; connect-src 'self'; " in policy
    for directive, element in (("style-src", "style"), ("script-src", "script")):
        [text] = re.findall(rf"<{element}>(.*?)</{element}>", page, re.S)
        source = b64encode(sha256(text.encode()).digest()).decode()
        assert f"; {directive} 'sha256-{source}'; " in policy
    assert not re.search(r"\b(?:src=|@import|url\(|innerHTML|eval)|style=|\bon\w+=", page)
    assert "$" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S), "no empty place"
    links = re.findall(r"<a href=\"([^\"]+)\"", page)
    assert {"docs", "v1/models", "health", "metrics"} <= set(links)
    for link in links:
        assert shared_server.get(f"/{link}").status == 200, link


def test_the_page_describes_the_model(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server:
        page = home(server).body.decode()
    config = bundled_engine.config
    for text in (
        "soliton-default",
        f"{config.n_params / 1e6:.1f} million parameters",
        bundled_engine.model.ops.format,
        f"{bundled_engine.max_seq_len:,} tokens",
    ):
        assert f"<dd>{text}</dd>" in page


@pytest.mark.parametrize("name", ["fake", "org/it's $(touch x) <b>&amp;", '"quoted" \\ $style ✓'])
def test_the_command_works_as_it_stands(name: str) -> None:
    with live_server(FakeEngine().as_engine, served_model_name=(name,)) as server:
        answer = home(server, host=f"localhost:{server.port}")
        command = command_of(answer)
        assert f" http://localhost:{server.port}/v1/completions " in command
        reply: Any = Answer(200, {}, run(command).encode()).json
    assert "<b>" not in answer.body.decode()
    assert (reply["object"], reply["model"]) == ("text_completion", name)
    assert reply["choices"][0]["text"]


@pytest.mark.parametrize("host", ["a/'><script>", "$(id)", "a b", "a:b", ""])
def test_a_host_that_is_not_one_is_not_shown(host: str) -> None:
    app = create_app(Settings(allow_hosts=("*",)), FakeEngine().as_engine)
    answer = ask(app, "GET", "/", [("host", host), ("accept", "text/html")])
    assert answer.status == 200
    assert "curl http://127.0.0.1:2/v1/completions " in command_of(answer)


def test_without_keys_an_unknown_host_is_refused(shared_server: LiveServer) -> None:
    assert home(shared_server, host="evil.example").status == 421


def test_with_keys_nothing_of_the_model_is_shown() -> None:
    engine, name = FakeEngine().as_engine, "secret-model"
    with live_server(engine, api_keys=("key",), served_model_name=(name,)) as server:
        summary = server.get("/")
        page = home(server, authorization="Bearer wrong")
        for answer in (summary, page):
            assert answer.status == 200
            shown = answer.body.decode() + str(answer.headers)
            for secret in (name, own_version(), "parameters", engine.model.ops.format):
                assert secret not in shown
        assert home(server, authorization="Bearer key").body == page.body, "the same for all"
        assert summary.json == {
            "name": "soliton",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "authorization": "Bearer KEY",
        }
        complete, save = (command_of(page, number).replace("KEY", "key") for number in (0, 1))
        assert '"model": "secret-model"' not in complete
        assert name in run(complete)
        assert run(save.replace("docs.html", "-")).startswith("<!doctype html>")


def test_the_port_for_health_checks_does_not_show_it() -> None:
    with live_server(FakeEngine().as_engine, health_port=1) as server:
        assert server.health_port
        other = LiveServer(server.health_port, server.app, server.stop, set())
        assert other.get("/health").status == 200
        assert other.get("/").status == 404
