"""mikupad in Chromium, as llama-server would serve it; prints what it saw as JSON.

usage: python with_mikupad.py BASE_URL MODEL CHROMIUM PAGES story|endings

PAGES holds mikupad.html and node_modules. The page loads its libraries from a server on the
internet; here they come from npm, and the one that npm does not have is written below.
"""

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, Route, sync_playwright

URL, MODEL, CHROMIUM, PAGES, PART = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
MODULES = Path(PAGES) / "node_modules"
STORY = "Once upon a time"
N_TOKENS = 24
BELOW_THE_TEXT = (400, 600)
BRANCH = 5  # the token in whose place another one is chosen
HOOKS = "useEffect, useLayoutEffect, useMemo, useRef, useState"
# Path of the address that the page imports -> the module.
LIBRARIES = {
    "react@": f"const {{{HOOKS}, createElement}} = React; export {{{HOOKS}, createElement}};",
    "react-dom@": "export const createRoot = ReactDOM.createRoot;",
    "htm@": "export const html = htm.bind(React.createElement);",
    "scrollview-resize@": "export const SVResizeObserver = ResizeObserver;",
}
GLOBALS = (
    "react/umd/react.production.min.js",
    "react-dom/umd/react-dom.production.min.js",
    "htm/dist/htm.js",
)


def library(route: Route) -> None:
    name = route.request.url.split("/v135/")[1]
    source = next(LIBRARIES[start] for start in LIBRARIES if name.startswith(start))
    headers = {"access-control-allow-origin": "*"}
    route.fulfill(body=source, content_type="text/javascript", headers=headers)


def storage(route: Route) -> None:
    """What the page keeps its sessions with, which only the server that it comes with has."""
    path = route.request.url.removeprefix(ROOT)
    said = {"result": {}, "version": 4, "features": {"sql": True}}
    route.fulfill(json=said, status=404 if path == "/load" else 200)


def opened(page: Page) -> None:
    for name in GLOBALS:
        page.add_init_script(path=MODULES / name)
    page.route("https://esm.sh/**", library)
    page.route(f"{ROOT}/", lambda route: route.fulfill(path=Path(PAGES) / "mikupad.html"))
    for path in ("version", "load", "all", "sessions", "save"):
        page.route(f"{ROOT}/{path}", storage)
    page.goto(f"{ROOT}/")


def predicted(page: Page, button: Locator) -> list[str]:
    """What each token is after a click on `button`, once none comes any more."""
    with page.expect_response(f"{ROOT}/completion"):
        button.click()
    page.get_by_role("button", name="Cancel", disabled=True).wait_for()
    tokens: list[str] = page.locator("[data-promptchunk]").all_text_contents()
    return tokens


def panel(page: Page, token: int) -> list[list[str]]:
    """What stands over a token: the names and probabilities of those that could have come."""
    page.mouse.move(*BELOW_THE_TEXT)
    page.locator("#probs").wait_for(state="detached")
    box = page.locator("[data-promptchunk]").nth(token).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator("#probs button").first.wait_for()
    parts = [page.locator(f"#probs .{part}").all_inner_texts() for part in ("tok", "prob")]
    return [list(pair) for pair in zip(*parts, strict=True)]


def story(page: Page) -> dict[str, Any]:
    """A text, the panel over one of its tokens, and what comes after another token was chosen."""
    requests: list[dict[str, Any]] = []
    page.on(
        "request",
        lambda request: (
            requests.append(request.post_data_json) if "/completion" in request.url else None
        ),
    )
    page.get_by_label("Seed (-1 = random)").fill("7")
    page.get_by_label("Max Predict Tokens (-1 = infinite)").fill(str(N_TOKENS))
    page.locator("#prompt-area").fill(STORY)
    seen: dict[str, Any] = {}
    seen["tokens"] = predicted(page, page.get_by_role("button", name="Predict", exact=True))
    seen["again"] = predicted(page, page.get_by_title("Regenerate"))
    seen["panels"] = {token: panel(page, token) for token in (1, N_TOKENS, BRANCH)}
    seen["branch"] = predicted(page, page.locator("#probs button").nth(1))
    seen["requests"] = requests
    seen["count"] = page.get_by_label("Tokens", exact=True).input_value()
    return seen


def endings(page: Page) -> dict[str, Any]:
    """What is left of a text that was cancelled, and what stands there of one that was refused."""
    cancel = page.get_by_role("button", name="Cancel")
    page.get_by_label("Max Predict Tokens (-1 = infinite)").fill("-1")
    page.locator("#prompt-area").fill("long")
    page.get_by_role("button", name="Predict", exact=True).click()
    page.locator("[data-promptchunk]").nth(3).wait_for()
    cancel.click()
    page.get_by_role("button", name="Cancel", disabled=True).wait_for()
    seen = {"cancelled": page.locator("[data-promptchunk]").count()}
    page.get_by_role("button", name="Grammar").click()
    page.locator("textarea.expanded-text-area-settings").fill("root ::= (")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Predict", exact=True).click()
    error = page.locator(".error-text")
    error.wait_for()
    return {**seen, "error": error.inner_text()}


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    page = browser.new_page()
    page.set_default_timeout(60_000)
    opened(page)
    result = story(page) if PART == "story" else endings(page)
    browser.close()
print(json.dumps(result))
