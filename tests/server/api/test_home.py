"""GET / and /ui: a page for browsers, JSON for programs; nothing of the model when keys are set."""

import re
from pathlib import Path

import pytest

from server.version import own_version
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"
SUMMARY = {
    "name": "soliton",
    "version": own_version(),
    "model": "fake",
    "ui": "/ui",
    "docs": "/docs",
    "openapi": "/openapi.json",
}
UI = Path(__file__).parents[3] / "server" / "api" / "ui"


def home(server: LiveServer, accept: str = BROWSER, **headers: str) -> Answer:
    return server.get("/", accept=accept, **headers)


@pytest.mark.parametrize(
    "accept",
    [BROWSER, "text/html", "TEXT/HTML;q=0.2", "text/*", "*/*;q=0.1,text/html", "text/html, a;q=x"],
)
def test_a_client_that_prefers_html_is_sent_to_the_page(
    shared_server: LiveServer, accept: str
) -> None:
    answer = home(shared_server, accept)
    assert (answer.status, answer.headers["location"]) == (307, "ui")
    assert answer.headers["vary"] == "accept"


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
    for name in ("ui", "docs", "openapi"):
        assert shared_server.get(answer.json[name]).status == 200


def test_head_is_answered_without_a_body_and_post_is_not(shared_server: LiveServer) -> None:
    for accept in (BROWSER, "*/*"):
        head = shared_server.request("HEAD", "/", headers={"accept": accept})
        whole = home(shared_server, accept)
        assert (head.status, head.body) == (whole.status, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]
    post = shared_server.post("/", {})
    assert (post.status, post.error["code"]) == (405, "method_not_allowed")


def test_the_page_and_its_files_are_served_as_they_are(shared_server: LiveServer) -> None:
    page = shared_server.get("/ui")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    names = {path.name for path in UI.iterdir()}
    linked = set(re.findall(r'(?:href|src)="ui/([^"]+)"', page.body.decode()))
    assert linked == {"icon.svg", "style.css", "app.js"}
    for name in names:
        answer = shared_server.get(f"/ui/{name}")
        assert (answer.status, answer.body) == (200, (UI / name).read_bytes()), name
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        again = shared_server.get(f"/ui/{name}", **{"if-none-match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


def test_the_files_name_no_other_machine_and_no_inline_code() -> None:
    for path in UI.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|@import|\burl\(|innerHTML|\beval\b|style=|\bon\w+=\"", text
        ), path


@pytest.mark.parametrize("path", ["/ui/x.js", "/ui/..%2fhome.py", "/ui/a/b", "/ui/__init__.py"])
def test_nothing_else_is_served(shared_server: LiveServer, path: str) -> None:
    assert shared_server.get(path).status == 404


def test_a_slash_at_the_end_leads_to_the_page(shared_server: LiveServer) -> None:
    answer = shared_server.get("/ui/")
    assert (answer.status, answer.headers["location"]) == (307, "../ui")


def test_without_keys_an_unknown_host_is_refused(shared_server: LiveServer) -> None:
    for path in ("/", "/ui", "/ui/app.js"):
        assert shared_server.get(path, host="evil.example").status == 421


def test_with_keys_nothing_of_the_model_is_shown() -> None:
    engine, name = FakeEngine().as_engine, "secret-model"
    with live_server(engine, api_keys=("key",), served_model_name=(name,)) as server:
        summary = server.get("/")
        page = server.get("/ui", authorization="Bearer wrong")
        for answer in (summary, page, server.get("/ui/app.js")):
            assert answer.status == 200
            shown = answer.body.decode() + str(answer.headers)
            for secret in (name, own_version(), engine.model.ops.format):
                assert secret not in shown
        assert summary.json == {
            "name": "soliton",
            "ui": "/ui",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "authorization": "Bearer KEY",
        }
        for path in ("/ui/x.js", "/uix"):
            assert server.get(path).status in (401, 404)
        assert server.get("/props").status == 401


def test_the_port_for_health_checks_does_not_show_it() -> None:
    with live_server(FakeEngine().as_engine, health_port=1) as server:
        assert server.health_port
        other = LiveServer(server.health_port, server.app, server.stop, set())
        assert other.get("/health").status == 200
        assert other.get("/").status == 404
