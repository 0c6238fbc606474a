"""SillyTavern in Chromium, from its own server; prints what it saw with each API type as JSON.

usage: python with_sillytavern.py BASE_URL MODEL CHROMIUM PAGE_URL TYPE…      (its names: tabby …)
"""

import json
import sys
from typing import Any

from playwright.sync_api import Locator, Page, sync_playwright

URL, MODEL, CHROMIUM, PAGE_URL, *TYPES = sys.argv[1:]
ROOT = URL.removesuffix("/v1")
N_TOKENS = 24
BRANCH = 5  # the token in whose place another one is chosen
PREFIX = "#logprobs_generation_output .logprobs_output_prefix"
TOKENS = "#logprobs_generation_output .logprobs_output_token"
QUIET_MS = 900  # the page draws its panel anew 300 ms after each of several events
# The panel shows this text and has not been drawn anew for a while: new elements have no time.
SETTLED = """([tokens, text, quiet]) => {
  const shown = [...document.querySelectorAll(tokens)];
  const same = shown.map(token => token.textContent).join("") === text;
  if (!same || document.body.dataset.generating) return false;
  shown[0].dataset.since ??= performance.now();
  return performance.now() - shown[0].dataset.since > quiet;
}"""
CANDIDATES = ".logprobs_top_candidate"


def drawer(page: Page, name: str) -> None:
    """Open or close one of the drawers at the top."""
    page.locator(f"#{name} .drawer-toggle").first.click()


def opened(page: Page) -> None:
    """As somebody who comes for the first time, who then asks for streamed answers of a fixed
    length and for the probabilities of their tokens.
    """
    page.goto(PAGE_URL)
    greeting = page.locator("dialog[open]")
    greeting.locator(".popup-input").fill("Ann")
    greeting.locator(".popup-button-ok").click()
    greeting.wait_for(state="detached")
    drawer(page, "sys-settings-button")
    page.locator("#main_api").select_option("textgenerationwebui")
    drawer(page, "sys-settings-button")
    drawer(page, "ai-config-button")
    page.locator("#amount_gen_counter").fill(str(N_TOKENS))
    page.locator("#amount_gen_counter").press("Tab")
    page.locator("#streaming_textgenerationwebui").check()
    page.locator("#ban_eos_token_textgenerationwebui").check()
    page.locator("#seed_textgenerationwebui").fill("7")
    drawer(page, "ai-config-button")
    drawer(page, "user-settings-button")
    page.locator("#request_token_probabilities").check()
    drawer(page, "user-settings-button")
    page.locator("#options_button").click()
    page.locator("#option_toggle_logprobs").click()


def connected(page: Page, kind: str) -> str:
    """What the page says once it is connected: the name of the model."""
    drawer(page, "sys-settings-button")
    page.locator("#textgen_type").select_option(kind)
    page.locator(f"#{kind}_api_url_text").fill(ROOT)
    page.locator("#api_button_textgenerationwebui").click()
    status = page.locator("#textgenerationwebui_api .online_status_text")
    status.filter(has_text=MODEL).wait_for()
    drawer(page, "sys-settings-button")
    name: str = status.inner_text()
    return name


def generated(page: Page, button: Locator) -> dict[str, Any]:
    """What a click on `button` lets the page send and receive, and what its panel then shows."""
    with page.expect_response("**/api/backends/text-completions/generate") as waited:
        button.click()
    lines = waited.value.text().splitlines()
    events = [json.loads(line[6:]) for line in lines if line[:7] == "data: {"]
    settled(page, "".join(texts(events)))
    return {
        "prompt": waited.value.request.post_data_json["prompt"],
        "events": events,
        "text": page.locator("#chat .mes").last.locator(".mes_text").inner_text(),
        "prefix": page.locator(PREFIX).all_inner_texts(),
        "tokens": page.locator(TOKENS).all_text_contents(),
    }


def texts(events: list[dict[str, Any]]) -> list[str]:
    """The pieces of text in a streamed answer."""
    return [
        event["content"] if "content" in event else event["choices"][0]["text"]
        for event in events
        if "content" in event or event.get("choices")
    ]


def settled(page: Page, text: str) -> None:
    """Wait until the panel shows an answer's tokens and is not about to be drawn anew, with which
    it would forget the chosen token.
    """
    visible = text.replace(" ", "·").replace("\n", "↵")
    page.wait_for_function(SETTLED, arg=[TOKENS, visible, QUIET_MS], polling=50)


def alternatives(page: Page, token: int) -> list[list[str]]:
    """What the panel lists for a token: names and probabilities."""
    page.locator(TOKENS).nth(token).click()
    page.locator(CANDIDATES).first.wait_for()
    return [row.locator("span").all_inner_texts() for row in page.locator(CANDIDATES).all()]


def story(page: Page) -> dict[str, Any]:
    """An answer, its panel, and the answer that goes on from another token."""
    page.locator("#send_textarea").fill("Tell me about the forest.")
    seen: dict[str, Any] = {"answer": generated(page, page.locator("#send_but"))}
    seen["panels"] = {token: alternatives(page, token) for token in (0, 1, BRANCH)}
    seen["branch"] = generated(page, page.locator(CANDIDATES + ":not(.selected):enabled").first)
    return seen


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    result: dict[str, Any] = {}
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(60_000)
    opened(page)
    for kind in TYPES:
        result[kind] = {"model": connected(page, kind), **story(page)}
    browser.close()
print(json.dumps(result))
