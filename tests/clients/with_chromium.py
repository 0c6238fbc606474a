"""The page /docs, and a page of another origin, in Chromium; prints what it saw as JSON.

usage: python with_chromium.py BASE_URL MODEL CHROMIUM      (files are written to the directory)
"""

import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

URL, MODEL, CHROMIUM = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
# What a person reads on a background, as WCAG computes it: the least ratio of any text.
CONTRAST = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  const ratios = [...document.querySelectorAll("body *")]
    .filter((one) => one.checkVisibility())
    .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((one) => [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => b - a))
    .map(([high, low]) => (high + 0.05) / (low + 0.05));
  return Math.min(...ratios);
}"""


def opened(browser: Browser, path: str, notes: list[str]) -> Page:
    """A page whose complaints and requests are noted."""
    page = browser.new_context().new_page()
    page.on("console", lambda message: notes.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: notes.append(f"error: {error}"))
    page.on("requestfailed", lambda request: notes.append(f"failed: {request.url}"))
    page.goto(f"{ROOT}{path}")
    return page


def documents(browser: Browser, saved: Path) -> dict[str, Any]:
    """/docs from the server, and as a file of a machine without a network."""
    notes: list[str] = []
    page = opened(browser, "/docs", notes)
    if page.title() != "Soliton: the API":
        return {"title": page.title()}  # it needs a key
    served = page.inner_text("body")
    saved.write_text(page.request.get(f"{ROOT}/docs").text())
    page.context.set_offline(True)
    page.goto(saved.as_uri())
    seen = {
        "title": page.title(),
        "routes": page.locator("nav a").all_inner_texts(),
        "same": page.inner_text("body").replace("http://127.0.0.1:8000", ROOT) == served,
        "command": page.locator("pre").first.inner_text().replace("http://127.0.0.1:8000", ROOT),
        "contrast": page.evaluate(CONTRAST),
        "notes": notes,
    }
    page.context.close()
    return seen


def foreign(browser: Browser, saved: Path) -> str:
    """What a page that was opened as a file gets from the server."""
    saved.write_text("<!doctype html><title>a page of another origin</title>")
    page = browser.new_page()
    page.goto(saved.as_uri())
    call = "(url) => fetch(url).then((answer) => `${answer.status}`, (error) => `${error}`)"
    text: str = page.evaluate(call, f"{URL}/models")
    page.close()
    return text


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    result = {
        "docs": documents(browser, Path.cwd() / "docs.html"),
        "foreign": foreign(browser, Path.cwd() / "foreign.html"),
    }
    browser.close()
print(json.dumps(result))
