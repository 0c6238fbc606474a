"""Everybody can use it: axe-core finds nothing serious in any mode, in light and in dark."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser_page import (
    accessibility_faults,
    go_to,
    in_state,
    ready,
    run_to_the_end,
    set_value,
    tokens,
)
from tests.support.live_server import LiveServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

EVERYTHING = None
CONTRAST = ["color-contrast"]


@pytest.mark.parametrize(("scheme", "rules"), [("light", EVERYTHING), ("dark", CONTRAST)])
def test_no_mode_has_a_serious_fault(
    visit: Callable[..., "Page"],
    reader: Any,
    story_server: LiveServer,
    scheme: str,
    rules: list[str] | None,
) -> None:
    """The two schemes differ in nothing but their colours."""

    def faults() -> list[str]:
        return accessibility_faults(page, rules)

    page = visit(f"{story_server.url}/ui", another=reader(color_scheme=scheme))
    ready(page)
    set_value(page, "max tokens", "16")
    run_to_the_end(page)
    tokens(page).nth(4).click()
    page.locator("#card .alternative").nth(1).click()
    in_state(page, "ended")
    page.get_by_text("More", exact=True).first.click()
    for measure in ("Guessed by", "Surprisal"):
        page.locator("section.desk:not([hidden])").get_by_text(measure, exact=True).click()
        assert faults() == [], f"colours by {measure}"
    page.get_by_text("More", exact=True).first.click()
    tokens(page).nth(4).click()
    page.keyboard.press("p")
    page.locator("#card .way").first.wait_for()
    assert faults() == [], "the card"
    page.keyboard.press("Escape")
    for mode in ("chat", "compare", "tree", "cache", "live"):
        go_to(page, mode)
        assert faults() == [], mode
    for name in ("Help", "Code"):
        page.get_by_role("button", name=name).click()
        assert faults() == [], name
        page.keyboard.press("Escape")


def test_a_phone_shows_everything_in_one_column(
    visit: Callable[..., "Page"], reader: Any, story_server: LiveServer
) -> None:
    phone = reader(viewport={"width": 360, "height": 740})
    page = visit(f"{story_server.url}/ui", another=phone)
    ready(page)
    run_to_the_end(page)
    tokens(page).nth(2).click()
    box = page.locator("#card").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    page.keyboard.press("Escape")
    for mode in ("prompt", "chat", "compare", "tree", "cache", "live"):
        go_to(page, mode)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, mode


def test_sentences_are_spoken_and_states_are_words(story: "Page") -> None:
    heard = story.evaluate_handle(
        """() => {
            const heard = [], live = document.querySelector("[aria-live=polite]");
            new MutationObserver(() => heard.push(live.textContent)).observe(
                live, { childList: true, characterData: true, subtree: true });
            return heard;
        }"""
    )
    run_to_the_end(story)
    pieces = heard.json_value()
    shown = "".join(tokens(story).all_text_contents())
    assert "".join("".join(pieces).split()) == "".join(shown.split())
    assert all(each.rstrip('"\n ')[-1:] in ".!?…" or len(each) >= 240 for each in pieces[:-1])
    assert "ready" in story.locator("#facts [data-fact=state]").inner_text()
    for button in story.get_by_role("button").all():
        assert button.inner_text() or button.get_attribute("aria-label")
