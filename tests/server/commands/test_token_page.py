"""`soliton complete --html`: the page says what the API says, shows it, and runs nothing."""

import json
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from server.__main__ import main
from tests.support.live_server import live_server

PROMPT = 'He said "</script><b>&amp;\r\n<!--" & once upon a time'
ARGUMENTS = ("--max-tokens", "40", "--temperature", "1.2", "--logprobs", "4", "--seed", "3")


class Page(HTMLParser):
    """The texts of a page's elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.completion = ""
        self.prompt = ""
        self.rows: list[list[str]] = []
        self.code = ""
        self.data: dict[str, Any] = {}
        self._open: list[str] = []
        self._script = ""
        self.feed(text)
        self.close()
        self.data = json.loads(self._script)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in ("meta", "link", "br"):
            self._open.append(attributes.get("id") or attributes.get("class") or tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if "completion" in self._open:
            self.completion += data
        elif "prompt" in self._open:
            self.prompt += data
        elif "data" in self._open:
            self._script += data
        elif "td" in self._open:
            self.rows[-1][-1] += data
        elif "pre" in self._open:
            self.code += data


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["complete", PROMPT, *ARGUMENTS, "--html", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def page(html: Path) -> Page:
    return Page(html.read_text(encoding="utf-8"))


def test_the_page_is_what_the_api_answers(page: Page, bundled_engine: Engine) -> None:
    body = {
        "prompt": PROMPT, "max_tokens": 40, "temperature": 1.2, "seed": 3, "logprobs": 4,
        "include": ["probs", "rank", "token_ids"],
    }  # fmt: skip
    with live_server(bundled_engine) as server:
        (choice,) = server.post("/v1/completions", body).json["choices"]
    logprobs = choice["logprobs"]
    assert page.completion == choice["text"] == page.data["completion"]
    assert page.prompt == PROMPT == page.data["prompt"]
    tokens = page.data["tokens"]
    for name in ("token_id", "p_raw", "p_sampled", "rank"):
        assert [token[name] for token in tokens] == logprobs[name][: len(tokens)], name
    assert [token["logprob"] for token in tokens] == logprobs["token_logprobs"][: len(tokens)]
    assert b"".join(bytes(token["bytes"]) for token in tokens).decode() == page.completion
    for row, token in zip(page.rows[1:], tokens, strict=False):
        assert row[2:4] == [f"{token['p_raw']:.4f}", f"{token['p_sampled']:.4f}"]


def test_its_command_generates_it_again(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = shlex.split(page.code)
    assert program == "soliton"
    assert "--html" not in words
    words = [word for word in words if word not in ("--logprobs", "4")]
    assert main(words) == 0
    assert capsys.readouterr().out == f"{page.completion}\n"


def test_it_is_one_file_that_runs_nothing(page: Page) -> None:
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert [each.get("type") for each in scripts] == ["application/json"]
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "b"), "what the prompt holds is text"
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert (attributes.get("href") or "#").startswith("#")
    policies = [each.get("content") for tag, each in page.tags if each.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    ids = {attributes["id"] for _, attributes in page.tags if attributes.get("id")}
    links = {(each.get("href") or "")[1:] for tag, each in page.tags if tag == "a"}
    assert links <= ids, "every token leads to its row"


def test_a_stop_string_and_half_a_character(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random bytes: many tokens are parts of characters, or of none."""
    path = tmp_path / "page.html"
    arguments = ("--model", str(tiny_model), "--max-tokens", "60", "--seed", "5")
    assert main(["complete", "Hello 🙂", *arguments, "--html", str(path)]) == 0
    shown = Page(path.read_text(encoding="utf-8"))
    assert f"{shown.completion}\n" == capsys.readouterr().out
    stop = shown.completion[20:22]
    assert main(["complete", "Hello 🙂", *arguments, "--stop", stop, "--html", str(path)]) == 0
    cut = Page(path.read_text(encoding="utf-8"))
    assert f"{cut.completion}\n" == capsys.readouterr().out
    assert cut.data["end"] == "stop_string"


def test_it_repeats_the_seed_that_was_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert main(["complete", "Once", "--max-tokens", "9", f"--html={path}"]) == 0
    shown = Page(path.read_text(encoding="utf-8"))
    capsys.readouterr()
    assert main(shlex.split(shown.code)[1:]) == 0
    assert capsys.readouterr().out == f"{shown.completion}\n"
    assert shlex.split(shown.code)[-2:] == ["--seed", str(shown.data["seed"])]


CHROMIUM = shutil.which("chromium")


@pytest.mark.clients
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)")
def test_chromium_shows_it_without_a_complaint(html: Path, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path}", f"--screenshot={shot}", f"file://{html}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    assert shot.stat().st_size > 10_000
