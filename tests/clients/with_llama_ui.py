"""llama.cpp's web page in Chromium, as llama-server would serve it; prints what it saw as JSON.

usage: python with_llama_ui.py BASE_URL MODEL CHROMIUM PAGES      (PAGES holds llama-ui.html)
"""

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

URL, MODEL, CHROMIUM, PAGES = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
FROG = "Tell me a story about a frog."
# How full the context is stands there only while the answer comes.
WATCH_CONTEXT = """() => {
  window.shown = "";
  new MutationObserver(() => {
    const found = document.body.innerText.match(/Context: [^\\n]+/);
    if (found) window.shown = found[0];
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


def opened(page: Page, notes: list[str], answers: dict[str, int]) -> None:
    page.on("pageerror", lambda error: notes.append(str(error)))
    page.on(
        "response",
        lambda response: answers.update({response.url.removeprefix(ROOT): response.status}),
    )
    # The page is the server's own there, and so are its icons.
    html = Path(PAGES) / "llama-ui.html"
    page.route(f"{ROOT}/", lambda route: route.fulfill(path=html, content_type="text/html"))
    page.route(f"{ROOT}/favicon.svg", lambda route: route.fulfill(body="<svg/>"))
    page.goto(f"{ROOT}/")


def chat(page: Page) -> dict[str, Any]:
    """A question, its answer with the page's statistics, and another answer."""
    page.evaluate(WATCH_CONTEXT)
    box = page.locator("textarea").first
    box.fill(FROG)
    with page.expect_response(f"{ROOT}/v1/chat/completions") as waited:
        box.press("Enter")
    replies = page.locator("[aria-label='Assistant message with actions']")
    statistics = page.get_by_text("tokens/s")
    statistics.wait_for()
    request = waited.value.request.post_data_json
    seen = {
        "request": request,
        "reply": replies.last.inner_text(),
        "context": page.evaluate("window.shown"),
    }
    with page.expect_response(f"{ROOT}/v1/chat/completions"):
        replies.last.get_by_label("Regenerate").click()
    statistics.wait_for()
    page.get_by_text("2/2").wait_for()
    return {**seen, "again": replies.last.inner_text()}


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    page = browser.new_page()
    page.set_default_timeout(60_000)
    notes: list[str] = []
    answers: dict[str, int] = {}
    opened(page, notes, answers)
    result = {**chat(page), "notes": notes, "answers": answers}
    browser.close()
print(json.dumps(result))
