"""The settings beside the text: what they send, that they are kept, and which one is wrong."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser_page import (
    REFUSED,
    in_state,
    last_request,
    ready,
    run_to_the_end,
    set_value,
    text_of,
    tokens,
)
from tests.support.live_server import LiveServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def settings(page: "Page") -> "Locator":
    return page.get_by_role("region", name="Settings", exact=True)


def more(page: "Page") -> "Locator":
    """The settings that few people need, unfolded."""
    folded = settings(page).locator("details")
    folded.locator("summary").click()
    return folded


def constrain(page: "Page", kind: str, text: str) -> None:
    more(page).get_by_label("constraint", exact=True).select_option(kind)
    settings(page).get_by_label("What the text must match").fill(text)


def test_the_samplers_run_in_the_order_of_the_list(story: "Page", story_server: LiveServer) -> None:
    set_value(story, "seed", "4")
    set_value(story, "temperature", "1.8")
    set_value(story, "top_p", "0.6")
    assert "sampler_order" not in last_request(story)
    in_state(story, "ended")
    order = more(story).get_by_label("Order of the samplers")
    names = order.locator("li span").all_inner_texts()
    order.get_by_role("button", name="temperature later").click()
    story.keyboard.press("Enter")
    order.locator("[data-name=xtc]").drag_to(order.locator("[data-name=smoothing]"))
    moved = order.locator("li span").all_inner_texts()
    assert moved.index("temperature") > names.index("temperature") + 1
    assert moved.index("xtc") <= 1
    body = last_request(story)
    assert body["sampler_order"] == moved
    in_state(story, "ended")
    fields = {name: body[name] for name in ("prompt", "max_tokens", "seed", "temperature", "top_p")}
    alone = story_server.post("/v1/completions", {**fields, "sampler_order": moved}).json
    assert text_of(story) == alone["choices"][0]["text"]
    story.reload()
    ready(story)
    assert order.locator("li span").all_text_contents() == moved
    settings(story).get_by_role("button", name="Back to").click()
    assert order.locator("li span").all_text_contents() == names


SCHEMA = '{"type": "array", "items": {"enum": ["Lily", "Tom"]}, "minItems": 2, "maxItems": 2}'


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("JSON schema", SCHEMA, r'\["(Lily|Tom)", "(Lily|Tom)"\]'),
        ("regex", "(yes|no), [a-z]{3}", "(yes|no), [a-z]{3}"),
        ("Lark or GBNF", 'start: " the " ("cat" | "dog") "."', r" the (cat|dog)\."),
    ],
    ids=["schema", "regex", "grammar"],
)
def test_the_text_matches_what_is_asked_of_it(
    story: "Page", kind: str, text: str, pattern: str
) -> None:
    constrain(story, kind, text)
    run_to_the_end(story)
    assert re.fullmatch(pattern, text_of(story))
    assert "complete" in story.locator("#facts [data-fact=state]").inner_text()
    tokens(story).nth(1).click()
    story.locator("#card").get_by_role("button", name="Redraw").click()
    in_state(story, "ended")
    assert re.fullmatch(pattern, text_of(story)), "a branch is bound by it too"


def test_a_constraint_is_remembered_as_it_was_written(story: "Page") -> None:
    constrain(story, "JSON schema", SCHEMA)
    story.locator("#help").focus()
    story.reload()
    ready(story)
    assert settings(story).get_by_label("What the text must match").input_value() == SCHEMA
    assert last_request(story)["structured_outputs"] == {"json": json.loads(SCHEMA)}
    in_state(story, "ended")
    more(story).get_by_label("constraint", exact=True).select_option("none")
    assert "structured_outputs" not in last_request(story)
    in_state(story, "ended")


def complaint(page: "Page", label: str, *, panel: str = "Settings") -> "Locator":
    """What stands below the field that has this label, and is tied to it for a screen reader."""
    field = page.get_by_role("region", name=panel, exact=True).get_by_label(label, exact=True)
    page.locator("[aria-invalid=true]").wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    return page.locator(f"#{field.get_attribute('aria-describedby')}")


@pytest.fixture
def doubtful(story_server: LiveServer, visit: Callable[..., Any]) -> "Page":
    """A page whose requests the server will refuse."""
    page: Page = visit(f"{story_server.url}/ui", expected=(REFUSED.format(400, "Bad Request"),))
    ready(page)
    return page


def test_what_the_server_refuses_is_said_by_the_field_that_it_names(doubtful: "Page") -> None:
    set_value(doubtful, "temperature", "-3")
    doubtful.keyboard.press("Control+Enter")
    in_state(doubtful, "failed")
    said = complaint(doubtful, "temperature")
    assert said.inner_text() == "temperature must be between 0.0 and 100.0, not -3.0"
    assert doubtful.locator("#notice").is_hidden()
    set_value(doubtful, "temperature", "1")
    assert doubtful.locator("[aria-invalid]").count() == 0
    run_to_the_end(doubtful)


def test_a_constraint_that_does_not_compile_unfolds_its_field(doubtful: "Page") -> None:
    constrain(doubtful, "regex", "(a")
    settings(doubtful).locator("summary").click()
    doubtful.keyboard.press("Control+Enter")
    in_state(doubtful, "failed")
    said = complaint(doubtful, "What the text must match")
    assert "at character 0: unclosed group" in said.inner_text()
    assert said.is_visible()


def test_in_compare_the_panel_with_the_wrong_setting_has_the_error(doubtful: "Page") -> None:
    doubtful.locator("#modes [data-mode=compare]").click()
    set_value(doubtful, "top_p", "7", panel="B")
    doubtful.get_by_role("button", name="Run both").click()
    said = complaint(doubtful, "top_p", panel="B")
    assert said.inner_text() == "top_p must be between 0.0 and 1.0, not 7.0"


def test_what_no_field_has_is_said_above_the_text(doubtful: "Page") -> None:
    doubtful.get_by_role("textbox", name="Prompt", exact=True).fill("a dog " * 1100)
    doubtful.keyboard.press("Control+Enter")
    doubtful.get_by_role("alert").get_by_text("maximum context length").wait_for()
