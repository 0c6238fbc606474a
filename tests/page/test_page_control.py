"""A text while it is written: pause, stop, reload, a second window; keys, prefixes, long texts."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.browser_page import (
    REFUSED,
    go_to,
    in_state,
    press,
    ready,
    set_value,
    text_of,
    tokens,
)
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

LONG = 10_000


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine(max_seq_len=2048)


@pytest.fixture
def slow(fake: FakeEngine) -> Iterator[LiveServer]:
    """A server whose texts take their time."""
    fake.model.token_time = 0.01
    with live_server(fake.as_engine) as server:
        yield server


@pytest.fixture
def running(slow: LiveServer, visit: Callable[..., "Page"]) -> "Page":
    """A page in the middle of a text."""
    page = visit(f"{slow.url}/ui")
    ready(page)
    set_value(page, "max tokens", "1500")
    page.keyboard.press("Control+Enter")
    tokens(page).nth(5).wait_for()
    return page


def kept(server: LiveServer) -> Any:
    return server.get("/v1/streams").json["data"]


def completions(server: LiveServer) -> str:
    return server.get("/metrics").body.decode()


def test_a_pause_holds_the_text_and_resuming_goes_on(running: "Page", slow: LiveServer) -> None:
    press(running, "pause")
    in_state(running, "paused")
    held = text_of(running)
    [stream] = kept(slow)
    assert (stream["state"], stream["completion_tokens"]) == ("paused", len(held))
    press(running, "rewind")
    wait_until(lambda: len(text_of(running)) == len(held) - 10)
    press(running, "pause")
    in_state(running, "running")
    wait_until(lambda: len(text_of(running)) > len(held))
    assert text_of(running).startswith(held), "the same tokens come again"


def test_escape_stops_and_the_server_counts_it(running: "Page", slow: LiveServer) -> None:
    running.keyboard.press("Escape")
    in_state(running, "ended")
    assert "stopped" in running.locator("#facts").inner_text()
    wait_until(lambda: not slow.lease.busy)
    [stream] = kept(slow)
    assert (stream["finish"], stream["completion_tokens"]) == ("control", len(text_of(running)))
    assert 'soliton_completions_total{reason="control"} 1.0' in completions(slow)


def test_after_a_reload_the_text_goes_on_where_it_is(running: "Page", slow: LiveServer) -> None:
    before = text_of(running)
    running.reload()
    ready(running)
    wait_until(lambda: len(text_of(running)) > len(before) + 20)
    in_state(running, "running")
    assert text_of(running).startswith(before)
    running.keyboard.press("Escape")
    in_state(running, "ended")
    [stream] = kept(slow)
    whole = slow.get(f"/v1/streams/{stream['id']}").json["text"]
    assert text_of(running) == whole, "nothing is lost, and nothing comes twice"


def test_two_texts_side_by_side_go_on_after_a_reload(
    slow: LiveServer, visit: Callable[..., "Page"]
) -> None:
    page = visit(f"{slow.url}/ui")
    ready(page)
    go_to(page, "compare")
    set_value(page, "max tokens", "80")
    page.get_by_role("button", name="Run both").click()
    second = page.get_by_role("region", name="Text B", exact=True).locator(".t")
    second.first.wait_for()
    page.reload()
    ready(page)
    page.locator(".compare .verdict", has_text="All 80 tokens are the same.").wait_for()
    assert second.count() == 80
    assert len(kept(slow)) == 2, "nothing was asked for again"


def test_a_second_window_reads_along(
    running: "Page", slow: LiveServer, visit: Callable[..., "Page"]
) -> None:
    other = visit(f"{slow.url}/ui")
    ready(other)
    wait_until(lambda: len(text_of(other)) > 20)
    press(other, "stop")
    for page in (running, other):
        in_state(page, "ended")
    assert text_of(other) == text_of(running)


def test_a_request_that_waits_says_so_and_can_be_given_up(
    running: "Page", slow: LiveServer, visit: Callable[..., "Page"], reader: Any
) -> None:
    # It may be forgotten before the page has asked to stop it.
    gone = REFUSED.format(404, "Not Found")
    page = visit(f"{slow.url}/ui", another=reader(), expected=(gone,))
    ready(page)
    page.keyboard.press("Control+Enter")
    in_state(page, "queued")
    page.locator("#facts", has_text="in the queue").wait_for()
    page.keyboard.press("Escape")
    in_state(page, "ended")
    wait_until(lambda: slow.lease.n_waiting == 0)
    running.keyboard.press("Escape")
    in_state(running, "ended")
    assert len(kept(slow)) == 1, "the one that waited is forgotten"


def test_ten_thousand_tokens_are_all_there_and_none_costs_much(
    visit: Callable[..., "Page"],
) -> None:
    fake = FakeEngine(max_seq_len=LONG + 100)
    with live_server(fake.as_engine, keep_streams_mb=512) as server:
        page = visit(f"{server.url}/ui")
        ready(page)
        fake.model.script = (b"It was a dark and stormy night.\n" * LONG)[:LONG]
        set_value(page, "max tokens", str(LONG))
        page.keyboard.press("Control+Enter")
        tokens(page).nth(LONG - 1).wait_for(state="attached", timeout=60_000)
        in_state(page, "ended")
        assert text_of(page) == fake.model.script.decode()
        page.locator("section.desk:not([hidden])").get_by_text("Rank", exact=True).click()
        tokens(page).nth(LONG - 1).click()
        assert f"token {LONG}" in page.locator("#card .name").inner_text()
        is_drawn = "(token) => token.checkVisibility({ contentVisibilityAuto: true })"
        assert tokens(page).nth(LONG - 1).evaluate(is_drawn)
        assert not tokens(page).nth(LONG // 2).evaluate(is_drawn), "what is out of sight is not"


def test_the_key_is_asked_for_and_stays_in_the_tab(visit: Callable[..., "Page"]) -> None:
    with live_server(FakeEngine().as_engine, api_keys=("first", "second")) as server:
        page = visit(f"{server.url}/", expected=(REFUSED.format(401, "Unauthorized"),))
        dialog = page.get_by_role("dialog", name="API key")
        dialog.get_by_label("API key").fill("wrong")
        dialog.get_by_role("button", name="Use it").click()
        dialog.get_by_text("not valid").wait_for()
        dialog.get_by_label("API key").fill("second")
        page.keyboard.press("Enter")
        ready(page)
        page.keyboard.press("Control+Enter")
        in_state(page, "ended")
        shown = text_of(page)
        assert shown
        page.reload()
        ready(page)
        wait_until(lambda: text_of(page) == shown)
        stored = "JSON.stringify([Object.values(sessionStorage), Object.values(localStorage)])"
        session, local = page.evaluate(f"() => JSON.parse({stored})")
        assert session == ["second"]
        assert "second" not in str(local)
        page.get_by_role("button", name="Code").click()
        assert "SOLITON_API_KEY" in page.locator("dialog pre").inner_text()
        assert "second" not in page.locator("dialog").inner_text()


def behind_a_prefix(app: ASGIApp) -> ASGIApp:
    """As a proxy that serves it under /llm."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            inside = path.removeprefix("/llm") if path.startswith("/llm/") else "/nowhere"
            scope = {**scope, "path": inside, "raw_path": inside.encode()}
        await app(scope, receive, send)

    return wrapped


def test_it_works_behind_a_path_prefix(visit: Callable[..., "Page"]) -> None:
    with live_server(FakeEngine().as_engine, wrapped=behind_a_prefix) as server:
        page = visit(f"{server.url}/llm/")
        ready(page)
        assert page.url == f"{server.url}/llm/ui"
        page.keyboard.press("Control+Enter")
        in_state(page, "ended")
        assert text_of(page)
        page.get_by_role("button", name="Code").click()
        assert f"{server.url}/llm/v1/completions" in page.locator("dialog pre").inner_text()


def test_a_server_that_keeps_nothing_still_writes(visit: Callable[..., "Page"]) -> None:
    with live_server(FakeEngine().as_engine, keep_streams="none") as server:
        page = visit(f"{server.url}/ui", expected=(REFUSED.format(400, "Bad Request"),))
        ready(page)
        page.keyboard.press("Control+Enter")
        in_state(page, "ended")
        assert text_of(page)
        tokens(page).nth(3).click()
        page.locator("#card .alternative").nth(1).click()
        page.get_by_role("alert").get_by_text(re.compile("does not keep")).wait_for()
