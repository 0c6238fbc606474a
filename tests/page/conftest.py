"""What the tests of the page share: one Chromium, and pages whose complaints are noted.

Playwright lives in the environment of the clients; what both environments have comes from the own.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

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

    page: "Page"
    notes: list[str] = field(default_factory=list)
    """Messages of the console, errors of scripts, and requests to elsewhere."""
    may_complain: bool = False
    """A test expects notes."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Not for the whole session: while it runs, no test can have an event loop of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def context(browser: "Browser") -> "Iterator[BrowserContext]":
    """A reader: what one window stores, another one of the same reader finds."""
    context = browser.new_context(
        viewport=DESKTOP, permissions=["clipboard-read", "clipboard-write"], accept_downloads=True
    )
    context.set_default_timeout(20_000)
    yield context
    context.close()


@pytest.fixture
def visit(context: "BrowserContext") -> Iterator[Callable[..., "Page"]]:
    """Opens an address. At the end the browser must not have complained of any page, and no page
    may have asked another server.
    """
    opened: list[Opened] = []

    def visit(url: str, *, may_complain: bool = False) -> "Page":
        page = context.new_page()
        one = Opened(page, may_complain=may_complain)
        opened.append(one)
        page.on("console", lambda message: one.notes.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: one.notes.append(f"error: {error}"))
        origin = "/".join(url.split("/")[:3])
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((origin, "blob:"))
                else one.notes.append(f"request to {request.url}")
            ),
        )
        page.goto(url)
        return page

    yield visit
    for one in opened:
        assert one.may_complain or one.notes == []


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
