"""Several models on the page: which one it is about, and that its requests are for that one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.browser_page import in_state, last_request, ready, text_of
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_models, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_the_reader_chooses_a_model(visit: "Callable[..., Page]") -> None:
    engines = {name: FakeEngine() for name in ("one", "two & more")}
    for name, engine in engines.items():
        engine.model.script = f"this is {name}".encode()
        engine.fingerprint = f"fp_{name}"
    fakes = {name: engine.as_engine for name, engine in engines.items()}
    with live_models(fakes, model_turn=0.05) as server:
        page = visit(f"{server.url}/")
        ready(page)
        choice = page.get_by_label("Model", exact=True)
        assert choice.locator("option").all_inner_texts() == ["one", "two & more"]
        assert choice.input_value() == "one"
        assert "model" not in last_request(page), "the first one needs no name"
        in_state(page, "ended")
        assert text_of(page) == "this is one"
        with page.expect_navigation():
            choice.select_option("two & more")
        ready(page)
        assert page.get_by_label("Model", exact=True).input_value() == "two & more"
        assert last_request(page)["model"] == "two & more"
        # The text of before is there first, as after every reload.
        wait_until(lambda: text_of(page) == "this is two & more")


def test_one_model_is_no_choice(story: "Page", story_server: LiveServer) -> None:
    name = story_server.get("/v1/models").json["data"][0]["id"]
    assert story.locator("#model").inner_text().startswith(f"{name} · ")
    assert story.locator("#model select").count() == 0
