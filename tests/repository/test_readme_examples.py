"""The commands in the README, the tutorial and the pages of reference print what the pages show."""

import re
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/readme_examples.py"))
TOKEN_VIEW: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/token_view.py"))
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", SCRIPT["PAGES"], ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page: Path) -> None:
    text = page.read_text()
    assert SCRIPT["SHELL"].search(text), "the page has an example"
    with SCRIPT["serving"]() as url:
        assert SCRIPT["with_outputs"](text, url) == text, "run scripts/readme_examples.py"


@pytest.mark.clients
def test_javascript_prints_what_the_page_shows() -> None:
    text = (ROOT / "docs" / "streams.md").read_text()
    assert SCRIPT["JAVASCRIPT"].search(text), "the page has an example"
    with SCRIPT["serving"]() as url:
        assert SCRIPT["with_javascript_outputs"](text, url) == text


def test_a_command_has_the_variables_of_those_before_it() -> None:
    example = "<!-- example: sh -->\n```console\n$ {}\n{}```\n"
    page = example.format("WORD=stays; echo", "\n") + example.format("echo $WORD", "stays\n")
    assert SCRIPT["with_outputs"](page, SCRIPT["PAGE_URL"]) == page
    with pytest.raises(SystemExit, match="exit code 3"):
        SCRIPT["with_outputs"](example.format("exit 3", ""), SCRIPT["PAGE_URL"])


def test_the_picture_shows_what_the_command_prints() -> None:
    drawn = TOKEN_VIEW["drawn"](TOKEN_VIEW["output"]())
    assert SCRIPT["same"](TOKEN_VIEW["PICTURE"].read_text(), drawn), "run scripts/token_view.py"


def test_a_wrong_token_or_number_would_be_found() -> None:
    same = SCRIPT["same"]
    shown = '"id":"cmpl-1","text":" there","token_logprobs":[-0.198]'
    assert same(shown, shown.replace("cmpl-1", "cmpl-2"))
    assert not same(shown, shown.replace("there", "was"))
    assert not same(shown, shown.replace("0.198", "0.298"))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130
    assert max(map(len, README.splitlines())) <= 240, "outputs are cut to what matters"


def test_the_figures_of_the_readme_are_those_of_the_page_on_performance() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    rows = re.findall(r"^\| (.*) \| ([\d,.]+) \| (.* [\d,.]+) \| ([\d.]+ x) \|$", README, re.M)
    assert len(rows) == 3
    results = (ROOT / "bench" / "RESULTS.md").read_text()
    for what, own, other, ratio in rows:
        model = what.split(" parameters")[0].split(",")[0]
        assert re.search(
            rf"^\| {model}.* \| {re.escape(own)} \| {re.escape(other)} \| {ratio} \|$", page, re.M
        ), what
        assert own in results
        assert other in results


def test_the_pages_have_the_words_that_people_search_for() -> None:
    for words in (
        "speculative decoding", "kv cache", "prompt caching", "structured outputs",
        "quantization", "openai-compatible", "logprobs", "pip install", "docker",
    ):  # fmt: skip
        assert words in README.lower(), words


def test_headings_of_a_page_follow_each_other() -> None:
    """No level is left out, so that the contents of a page can be built from them."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
        levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.M)]
        assert levels[0] == 1, page.name
        assert all(after <= before + 1 for before, after in pairwise(levels)), page.name
