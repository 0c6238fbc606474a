"""What the tests of the page share: one Chromium, and pages whose complaints are noted.

Playwright lives in the environment of the clients; what both environments have comes from the own.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine import Engine
from tests.support.browser_page import ready
from tests.support.client_process import CLIENTS
from tests.support.live_server import LiveServer, live_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium")
DESKTOP = {"width": 1280, "height": 800}

sys.path += map(str, (CLIENTS / ".venv" / "lib").glob("python3*/site-packages"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is one of a client, and needs a browser."""
    absent = pytest.mark.skipif(
        CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"
    )
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.clients)
            if "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(absent)


@dataclass(slots=True)
class Opened:
    """A page, with what the browser said of it."""

    notes: list[str] = field(default_factory=list)
    """Messages of the console, violations of the CSP among them, errors of scripts, and requests
    to elsewhere."""
    expected: tuple[str, ...] = ()
    """Those that the test provokes, word for word."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Not for the whole session: while it runs, no test can have an event loop of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def reader(browser: "Browser") -> "Iterator[Callable[..., BrowserContext]]":
    """Makes readers. What one window stores, another one of the same reader finds."""
    made = []

    def reader(**options: Any) -> "BrowserContext":
        options = {"viewport": DESKTOP, "accept_downloads": True, **options}
        context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
        context.set_default_timeout(20_000)
        made.append(context)
        return context

    yield reader
    for context in made:
        context.close()


@pytest.fixture
def visit(reader: "Callable[..., BrowserContext]") -> Iterator[Callable[..., "Page"]]:
    """Opens an address, for the same reader unless the test names `another`. At the end the browser
    must not have complained of any page, and no page may have asked another server.
    """
    opened: list[Opened] = []
    usual = reader()

    def visit(
        url: str, *, another: "BrowserContext | None" = None, expected: tuple[str, ...] = ()
    ) -> "Page":
        page = (another or usual).new_page()
        one = Opened(expected=expected)
        opened.append(one)
        page.on("console", lambda message: one.notes.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: one.notes.append(f"error: {error}"))
        origin = "/".join(url.split("/")[:3])
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((f"{origin}/", "blob:"))
                else one.notes.append(f"request to {request.url}")
            ),
        )
        page.goto(url)
        return page

    yield visit
    for one in opened:
        assert [note for note in one.notes if note not in one.expected] == []


@pytest.fixture(scope="session")
def story_server(bundled_engine: Engine) -> Iterator[LiveServer]:
    """The built-in model, for all files."""
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture
def story(story_server: LiveServer, visit: Callable[..., "Page"]) -> "Page":
    """The page, ready, with the built-in model behind it."""
    page = visit(f"{story_server.url}/")
    ready(page)
    return page
