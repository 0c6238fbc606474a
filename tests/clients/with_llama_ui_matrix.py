"""llama.cpp's web page in Chromium, feature by feature, against a server whose replies are known;
prints what it showed as one line of JSON.

usage: python with_llama_ui_matrix.py BASE_URL MODEL CHROMIUM PAGES
"""

import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

URL, MODEL, CHROMIUM, PAGES = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
KEY = "key"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SIZE = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["size"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": CITY},
}
ABORTED = 'soliton_completions_total{reason="aborted"}'
REPLY = "[aria-label='Assistant message with actions']"


def gauge(name: str) -> float:
    """What /metrics says of this name, 0.0 if nothing."""
    request = urllib.request.Request(f"{ROOT}/metrics", headers={"authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(f"{name} ")]
    return float(found[0].split()[-1]) if found else 0.0


def soon(holds: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if holds():
            return True
        time.sleep(0.05)
    return False


def asked(browser: Browser, text: str, **fields: Any) -> Page:
    """The page once this question was sent, with more fields of the body; like all settings, they
    stand where the browser keeps them.
    """
    config = {
        "apiKey": KEY,
        "custom": json.dumps(fields),
        "showToolCalls": True,
        "showThoughtInProgress": True,
    }
    page = browser.new_context().new_page()
    page.set_default_timeout(60_000)
    page.add_init_script(f"localStorage.setItem('config', {json.dumps(json.dumps(config))})")
    html = Path(PAGES) / "llama-ui.html"
    page.route(f"{ROOT}/", lambda route: route.fulfill(path=html, content_type="text/html"))
    page.route(f"{ROOT}/favicon.svg", lambda route: route.fulfill(body="<svg/>"))
    page.goto(f"{ROOT}/")
    box = page.locator("textarea").first
    box.fill(text)
    box.press("Enter")
    return page


def answered(browser: Browser, text: str, **fields: Any) -> Page:
    page = asked(browser, text, **fields)
    page.get_by_text("tokens/s").wait_for()
    return page


def tools(browser: Browser) -> Any:
    badge = answered(browser, "call", tools=[TOOL]).locator(".tool-call-badge")
    shown = json.loads(str(badge.get_attribute("title")))["function"]
    return [shown["name"], shown["arguments"]]


def schema(browser: Browser) -> Any:
    shown = answered(browser, "size", json_schema=SIZE, temperature=0).locator(REPLY).inner_text()
    return json.loads(re.findall(r"\{.*?\}", shown, re.DOTALL)[0])


def reasoning(browser: Browser) -> Any:
    """The words of the reply, if they are there: the reasoning stands in a box that opens."""
    page = answered(browser, "think")
    page.get_by_text("Reasoning", exact=True).click()
    page.get_by_text("hm", exact=True).wait_for()
    shown = page.locator(REPLY).inner_text()
    return [word for word in ("hm", "noon") if re.search(rf"\b{word}\b", shown)]


def cancel(browser: Browser) -> bool:
    """Whether the engine gives up a long text when somebody stops it. It must have begun: what is
    stopped before it reached the server is no answer that was given up.
    """
    before = gauge(ABORTED)
    page = asked(browser, "long")
    if not soon(lambda: gauge("soliton_engine_busy") == 1):
        raise TimeoutError("the engine has begun nothing")
    page.get_by_role("button", name="Stop").click()
    return soon(lambda: gauge(ABORTED) > before)


def error(browser: Browser) -> str:
    dialog = asked(browser, "x", model="none").get_by_role("alertdialog")
    dialog.wait_for()
    shown: str = dialog.inner_text()
    return shown


FEATURES = (tools, schema, reasoning, cancel, error)


def saw(feature: Callable[[Browser], Any], browser: Browser) -> Any:
    try:
        return feature(browser)
    except Exception as failure:  # noqa: BLE001 - one feature must not hide the others
        return f"{type(failure).__name__}: {failure}"


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    result = {feature.__name__: saw(feature, browser) for feature in FEATURES}
    browser.close()
print(json.dumps(result))
