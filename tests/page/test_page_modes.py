"""The other modes as a reader uses them, and what leaves the page: links, code, files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser_page import (
    go_to,
    in_state,
    press,
    ready,
    run_to_the_end,
    set_value,
    text_of,
    tokens,
)
from tests.support.live_server import Answer, LiveServer, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


def say(page: "Page", text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    in_state(page, "ended")


def test_a_chat_answers_and_remembers(story: "Page", story_server: LiveServer) -> None:
    go_to(story, "chat")
    set_value(story, "seed", "3")
    say(story, "Tell me a story.")
    messages = [{"role": "user", "content": "Tell me a story."}]
    body: dict[str, Any] = {"messages": messages, "seed": 3, "max_tokens": 200}
    reply = story_server.post("/v1/chat/completions", body).json["choices"][0]["message"]
    assert text_of(story) == reply["content"]
    say(story, "And then?")
    turns = [*messages, reply, {"role": "user", "content": "And then?"}]
    last = story_server.post("/v1/chat/completions", {**body, "messages": turns}).json
    assert text_of(story) == last["choices"][0]["message"]["content"]
    assert story.locator(".turn").count() == 2
    story.reload()
    ready(story)
    wait_until(lambda: story.locator(".turn").count() == 2)
    wait_until(lambda: text_of(story) == last["choices"][0]["message"]["content"])


def test_a_reply_branches_and_its_message_can_be_written_anew(story: "Page") -> None:
    go_to(story, "chat")
    say(story, "Who are you?")
    first = text_of(story)
    tokens(story).first.click()
    story.locator("#card .alternative:not(.own)").first.click()
    in_state(story, "ended")
    wait_until(lambda: text_of(story) != first)
    assert story.locator(".turn").count() == 1
    story.get_by_role("button", name="Edit").click()
    assert story.get_by_label("Message", exact=True).input_value() == "Who are you?"
    assert story.locator(".turn").count() == 0


def test_two_settings_side_by_side_part_where_their_tokens_do(
    story: "Page", story_server: LiveServer
) -> None:
    go_to(story, "compare")
    set_value(story, "seed", "5")
    set_value(story, "max tokens", "60")
    set_value(story, "temperature", "1.6", panel="B")
    story.get_by_role("button", name="Run both").click()
    ids = []
    for temperature in (None, 1.6):
        body = {"prompt": "Once upon a time", "seed": 5, "max_tokens": 60, "logprobs": 0}
        more = {"temperature": temperature, "include": ["token_ids"]}
        answer = story_server.post("/v1/completions", {**body, **more}).json["choices"][0]
        ids.append(answer["logprobs"]["token_id"])
    place = next(i for i, (one, other) in enumerate(zip(*ids, strict=False)) if one != other)
    verdict = story.locator(".compare .verdict")
    verdict.get_by_text(f"The same for {place} tokens").wait_for()
    for name in ("A", "B"):
        column = story.get_by_role("region", name=f"Text {name}", exact=True)
        marked = column.locator(".t").nth(place)
        assert "differs" in (marked.get_attribute("class") or "")
        assert column.locator(".differs").count() == 1
    assert "temperature 1.6" in story.get_by_role("region", name="Text B", exact=True).inner_text()


def test_the_tree_is_walked_by_keyboard_and_peeked_into(story: "Page") -> None:
    run_to_the_end(story)
    first = text_of(story)
    for place in (3, 8):
        tokens(story).nth(place).click()
        story.locator("#card .alternative:not(.own)").first.click()
        in_state(story, "ended")
    second = text_of(story)
    go_to(story, "tree")
    tree = story.get_by_role("tree", name="All branches")
    wait_until(lambda: tree.get_by_role("treeitem").count() == 5)
    assert all(
        re.search(r"-\d+\.\d\d", row) for row in tree.get_by_role("treeitem").all_inner_texts()
    )
    tree.locator("[tabindex='0']").focus()
    story.keyboard.press("Home")
    level = "document.activeElement.getAttribute('aria-level')"
    assert story.evaluate(level) == "1"
    story.keyboard.press("ArrowRight")
    assert story.evaluate(level) == "2"
    story.keyboard.press("Enter")
    wait_until(lambda: "here" in (story.evaluate("document.activeElement.className")))
    story.keyboard.press("p")
    ways = story.get_by_role("list", name="Where the alternatives lead").get_by_role("button")
    ways.first.wait_for()
    n_ways = ways.count()
    assert 2 <= n_ways <= 6
    go_to(story, "prompt")
    assert text_of(story) == first
    assert text_of(story) != second


def test_the_cache_says_what_would_be_computed_and_why(story: "Page") -> None:
    run_to_the_end(story)
    go_to(story, "cache")
    verdict = story.locator("section[aria-label=Cache] .verdict")
    verdict.get_by_text("3 of 4 tokens are cached").wait_for()
    story.get_by_label("Prompt to look up").fill("Once upon a hill there was a goat")
    verdict.get_by_text("3 of 8 tokens are cached, 5 would be computed").wait_for()
    story.get_by_text("Differs at token 3: “hill").wait_for()
    pieces = story.locator(".pieces .piece")
    assert pieces.all_text_contents()[:4] == ["Once", "␣upon", "␣a", "␣hill"]
    assert story.locator(".pieces .cached").count() == 3
    rows = story.get_by_role("region", name="Prompts of this page").locator("tbody tr")
    assert "3 of 3 cached" in rows.first.inner_text() or "cached" in rows.first.inner_text()
    kept = story.get_by_role("region", name="Kept streams").locator("tbody tr")
    before = kept.count()
    story.get_by_role("button", name="Forget").first.click()
    wait_until(lambda: kept.count() == before - 1)


def test_live_shows_what_the_server_does(story: "Page", story_server: LiveServer) -> None:
    go_to(story, "live")
    speed = story.locator("figure", has_text="Speed of a request").locator("output")
    story_server.post("/v1/completions", {"prompt": "The cat", "max_tokens": 50})
    wait_until(lambda: "tok/s" in speed.inner_text())
    assert story.locator("figure canvas").count() == 6
    assert "idle" in story.locator("section[aria-label=Live]").inner_text()


def test_a_link_opens_the_same_text_in_another_browser(
    story: "Page", reader: Any, visit: Callable[..., "Page"]
) -> None:
    story.get_by_role("textbox", name="Prompt", exact=True).fill("The “green” house\n")
    set_value(story, "temperature", "1.1")
    run_to_the_end(story)
    story.get_by_role("button", name="Share").click()
    link = story.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{story.url.split('#')[0]}#")
    page = visit(link, another=reader())
    ready(page)
    run_to_the_end(page)
    assert text_of(page) == text_of(story)


def test_the_code_of_a_request_gives_the_same_text(story: "Page") -> None:
    import subprocess

    set_value(story, "seed", "11")
    run_to_the_end(story)
    story.get_by_role("button", name="Code").click()
    command = story.locator("dialog pre").inner_text()
    result = subprocess.run(["sh", "-c", f"{command} -sS"], capture_output=True, check=True)
    events = [line[6:] for line in result.stdout.decode().split("\n") if line.startswith("data: {")]
    chunks = [Answer(200, {}, event.encode()).json for event in events]
    pieces = [choice["text"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(pieces) == text_of(story)
    story.get_by_text("as Python", exact=True).click()
    compile(story.locator("dialog pre").inner_text(), "code", "exec")


def test_a_run_is_saved_and_shown_again(
    story: "Page", visit: Callable[..., "Page"], story_server: LiveServer, tmp_path: Path
) -> None:
    set_value(story, "seed", "12")
    run_to_the_end(story)
    with story.expect_download() as download:
        story.get_by_role("button", name="Export").click()
    saved = tmp_path / "run.json"
    download.value.save_as(saved)
    file = json.loads(saved.read_text())
    assert file["run"]["text"] == text_of(story)
    assert file["request"]["seed"] == 12
    press(story, "run")
    in_state(story, "ended")
    story.set_input_files("#file", saved)
    wait_until(lambda: text_of(story) == file["run"]["text"])
    tokens(story).nth(2).click()
    assert story.locator("#card .alternative").count() >= 8
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    story.set_input_files("#file", wrong)
    story.get_by_role("alert").get_by_text("not a run").wait_for()


@pytest.mark.parametrize("name", ["Help", "Code"])
def test_a_dialog_closes_with_escape_and_stops_nothing(story: "Page", name: str) -> None:
    story.get_by_role("button", name=name).click()
    dialog = story.locator("dialog[open]")
    dialog.wait_for()
    story.keyboard.press("Escape")
    dialog.wait_for(state="detached")
