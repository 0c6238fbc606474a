"""The prompt mode as a reader uses it: write, look into a token, choose another one, go on."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine import Engine
from tests.support.browser_page import (
    in_state,
    press,
    ready,
    run_to_the_end,
    set_value,
    text_of,
    tokens,
)
from tests.support.live_server import LiveServer, live_server, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROMPT = "The old dog"
ANIMALS = ("hen", "duck", "goose")
_SHOWN_S = 2.0


def over_a_slow_line(app: ASGIApp) -> ASGIApp:
    """No event of the progress arrives before the page has shown the one before it: the test's
    observer then asks for /health.
    """
    shown = asyncio.Event()

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/health":
            shown.set()

        async def late(message: Message) -> None:
            body = message.get("body", b"")
            if b"prompt_progress" not in body:
                await send(message)
                return
            *events, rest = body.split(b"\n\n")
            for event in events:
                shown.clear()
                await send({**message, "body": event + b"\n\n", "more_body": True})
                if b"prompt_progress" in event:
                    with suppress(TimeoutError):  # the last one may show nothing new
                        await asyncio.wait_for(shown.wait(), _SHOWN_S)
            await send({**message, "body": rest})

        await app(scope, receive, late)

    return wrapped


def typed(page: "Page", *, seed: int = 7, length: int = 40) -> None:
    set_value(page, "seed", str(seed))
    set_value(page, "max tokens", str(length))
    page.get_by_role("textbox", name="Prompt", exact=True).fill(PROMPT)


def answered(server: LiveServer, *, seed: int = 7, length: int = 40) -> Any:
    """The same request from a program."""
    body = {
        "prompt": PROMPT, "max_tokens": length, "seed": seed, "logprobs": 8,
        "include": ["token_ids", "bytes", "probs", "rank", "draft"],
    }  # fmt: skip
    return server.post("/v1/completions", body).json["choices"][0]


def test_what_is_typed_becomes_the_text_that_the_api_gives(
    story: "Page", story_server: LiveServer
) -> None:
    typed(story)
    run_to_the_end(story)
    choice = answered(story_server)
    assert text_of(story) == choice["text"]
    assert tokens(story).count() == len(choice["logprobs"]["tokens"])
    assert story.locator("#facts [data-fact=seed] dd").inner_text() == "7"
    assert re.search(r"\d+ tok/s", story.locator("#facts").inner_text())


def test_the_card_of_a_token_has_what_the_api_says_of_it(
    story: "Page", story_server: LiveServer
) -> None:
    typed(story)
    run_to_the_end(story)
    logprobs = answered(story_server)["logprobs"]
    place = max(range(len(logprobs["rank"])), key=logprobs["rank"].__getitem__)
    tokens(story).nth(place).hover()
    card = story.get_by_role("dialog", name="Token")
    card.wait_for()
    rows = card.locator(".alternative").all()
    for row, other in zip(rows, logprobs["alternatives"][place], strict=False):
        name = row.locator(".text").inner_text()
        assert name == other["token"].replace(" ", "␣").replace("\n", "↵")
        raw, drawn = (
            float(text.strip("modelrawn <%")) for text in row.locator(".p").all_text_contents()
        )
        assert raw == pytest.approx(100 * other["p_raw"], abs=0.051)
        assert drawn == pytest.approx(100 * other["p_sampled"], abs=0.051)
        if drawn == 0:
            assert row.locator(".note").inner_text().startswith("cut by")
    assert f"#{logprobs['rank'][place] + 1} of 4,096" in card.inner_text()
    story.mouse.move(5, 5)
    card.wait_for(state="hidden")


def test_another_word_is_chosen_and_what_is_before_it_stays(story: "Page") -> None:
    typed(story)
    run_to_the_end(story)
    before = text_of(story)
    kept = "".join(tokens(story).all_text_contents()[:6])
    tokens(story).nth(6).click()
    other = story.locator("#card .alternative:not(.own)").first
    word = other.locator(".text").inner_text()
    other.click()
    in_state(story, "ended")
    parts = tokens(story).all_text_contents()
    assert "".join(parts[:6]) == kept
    assert parts[6].strip() == word.replace("␣", " ").replace("↵", "\n").strip()
    assert text_of(story) != before
    # Both ways stand in the tree, and the first one can be chosen again.
    rows = story.locator(".branches [role=treeitem]")
    wait_until(lambda: rows.count() == 3)
    story.locator(".branches [role=treeitem]:not(.here)").last.click()
    wait_until(lambda: text_of(story) == before)


def test_a_text_in_the_place_of_a_token_goes_on(story: "Page") -> None:
    typed(story)
    run_to_the_end(story)
    tokens(story).nth(4).click()
    story.keyboard.press("e")
    story.keyboard.type(" purple dragon")
    story.keyboard.press("Enter")
    in_state(story, "ended")
    wait_until(lambda: " purple dragon" in text_of(story))
    story.locator("section.desk:not([hidden])").get_by_text("Guessed by", exact=True).click()
    assert "o-you" in (tokens(story).nth(4).get_attribute("class") or "")


def test_the_keyboard_alone_finds_a_token_peeks_and_branches(story: "Page") -> None:
    typed(story)
    run_to_the_end(story)
    story.locator(".tokens:visible").focus()
    story.keyboard.press("Home")
    for _ in range(5):
        story.keyboard.press("ArrowRight")
    assert "token 6" in story.locator("#card .name").inner_text()
    story.keyboard.press("p")
    story.locator("#card .way").first.wait_for()
    story.keyboard.press("ArrowDown")
    story.keyboard.press("ArrowDown")
    other = story.evaluate("document.activeElement.querySelector('.text').textContent")
    story.keyboard.press("Enter")
    in_state(story, "ended")
    assert tokens(story).nth(5).text_content() == other.replace("␣", "")


def test_a_new_draw_differs_and_going_on_adds(story: "Page") -> None:
    typed(story, length=20)
    run_to_the_end(story)
    first = text_of(story)
    tokens(story).nth(3).click()
    story.locator("#card").get_by_role("button", name="Redraw").click()
    in_state(story, "ended")
    wait_until(lambda: text_of(story) != first)
    second = text_of(story)
    press(story, "continue")
    wait_until(lambda: len(text_of(story)) > len(second))
    in_state(story, "ended")
    assert text_of(story).startswith(second)


def test_the_colours_have_a_legend_and_are_not_colours_alone(story: "Page") -> None:
    typed(story)
    run_to_the_end(story)
    for name in ("Entropy", "Rank", "Guessed by", "Time", "Surprisal"):
        story.locator("section.desk:not([hidden])").get_by_text(name, exact=True).click()
        assert story.locator("section.desk:not([hidden]) .legend li").count() >= 6
    line = "(token) => getComputedStyle(token).boxShadow"
    levels = {tokens(story).nth(i).get_attribute("class") for i in range(tokens(story).count())}
    assert len(levels) > 2
    shadows = {story.locator(f".legend .l{level}").first.evaluate(line) for level in range(6)}
    assert len(shadows) == 6, "each level has a line of its own under it"


def test_a_long_prompt_says_how_far_it_is_and_how_long_it_takes(
    bundled_engine: Engine, visit: Callable[..., "Page"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled_engine.model, "chunk_size", 192)
    prompt = "".join(f"The {animal} has {n} eggs. " for n in range(30) for animal in ANIMALS)
    n_prompt = len(bundled_engine.tokenizer.encode(prompt))
    with live_server(bundled_engine, wrapped=over_a_slow_line) as server:
        page = visit(f"{server.url}/ui")
        ready(page)
        set_value(page, "max tokens", "5")
        page.get_by_role("textbox", name="Prompt", exact=True).fill(prompt)
        page.evaluate(
            """() => {
              window.said = [];
              const note = () => {
                said.push(document.querySelector("#facts").innerText);
                fetch("health");
              };
              const options = { subtree: true, childList: true, characterData: true };
              new MutationObserver(note).observe(document.querySelector("#facts"), options);
            }"""
        )
        run_to_the_end(page)
        said = page.evaluate("said.join(' ')")
    steps = re.findall(r"reading the prompt, (\d+) of (\d+), (\d+\.\d) s left", said)
    done = list(dict.fromkeys(int(step[0]) for step in steps))
    assert len(done) >= 3
    assert done == sorted(done)
    assert done[-1] < n_prompt
    assert {int(step[1]) for step in steps} == {n_prompt}
