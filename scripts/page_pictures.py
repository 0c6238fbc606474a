"""Takes the pictures of the page /ui anew: every mode, into docs/pictures.

usage: .venv/bin/python scripts/page_pictures.py [MODEL]

`make test-page` installs what it needs. MODEL is one that `soliton serve` knows; the pictures in
the repository show the built-in one.
"""

import io
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = "/usr/bin/chromium"
SIZE = {"width": 1280, "height": 760}
N_COLOURS = 160
MAX_BYTES = 150_000

sys.path += map(str, (ROOT / "tests" / "clients" / ".venv" / "lib").glob("python3*/site-packages"))


@contextmanager
def served(model: list[str]) -> Iterator[str]:
    """The address of a server that runs while the block does."""
    command = [str(ROOT / ".venv" / "bin" / "soliton"), "serve", *model, "--port", "0"]
    with subprocess.Popen(
        command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        line = next(line for line in run.stdout if " is ready at " in line)
        match = re.search(r"http://[\d.:]+", line)
        assert match, line
        try:
            yield match.group()
        finally:
            run.terminate()


def begun(browser: "Browser", address: str, scheme: str = "light") -> "Page":
    """A reader who has never been here."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{address}/ui")
    page.locator("#modes [aria-current=page]").wait_for()
    setting(page, "seed", "7")
    return page


def setting(page: "Page", label: str, value: str, panel: str = "Settings") -> None:
    field = page.get_by_role("region", name=panel, exact=True).get_by_label(label, exact=True)
    field.fill(value)
    field.press("Enter")


def written(page: "Page") -> None:
    page.locator("section.desk:not([hidden]) .tokens .t").first.wait_for()
    page.locator("#facts[data-state=ended]").wait_for()


def branched(page: "Page", token: int, alternative: int) -> None:
    page.locator("section.desk:not([hidden]) .tokens .t").nth(token).click()
    page.locator("#card .alternative").nth(alternative).click()
    written(page)


def prompt(page: "Page") -> None:
    setting(page, "max tokens", "110")
    page.keyboard.press("Control+Enter")
    written(page)
    branched(page, 4, 1)
    page.locator(".tokens:visible .t").nth(22).hover()
    page.locator("#card").wait_for()


def dark(page: "Page") -> None:
    setting(page, "max tokens", "110")
    page.keyboard.press("Control+Enter")
    written(page)
    page.locator(".tokens:visible .t").nth(4).click()
    page.keyboard.press("p")
    page.locator("#card .way").first.wait_for()


def chat(page: "Page") -> None:
    mode(page, "chat")
    for text in ("Tell me a story about a frog.", "What did the frog do then?"):
        page.get_by_label("Message", exact=True).fill(text)
        page.keyboard.press("Enter")
        written(page)
    page.locator(".chat").evaluate("(log) => { log.scrollTop = 0; }")


def compare(page: "Page") -> None:
    mode(page, "compare")
    setting(page, "max tokens", "110")
    setting(page, "temperature", "1.1", "B")
    page.get_by_role("button", name="Run both").click()
    page.locator(".compare .verdict", has_text="then").wait_for()
    written(page)


def tree(page: "Page") -> None:
    setting(page, "max tokens", "70")
    page.keyboard.press("Control+Enter")
    written(page)
    for token, alternative in ((4, 1), (14, 1), (30, 2)):
        branched(page, token, alternative)
    mode(page, "tree")
    page.locator(".tree-mode [role=treeitem]").nth(4).wait_for()
    page.locator(".tree-mode [role=treeitem]").nth(2).focus()
    page.keyboard.press("p")
    page.locator(".ways li").first.wait_for()


def cache(page: "Page") -> None:
    page.keyboard.press("Control+Enter")
    written(page)
    mode(page, "cache")
    page.get_by_label("Prompt to look up").fill(
        "Once upon a time there was a frog who lived by a pond."
    )
    page.get_by_text("Differs at token").wait_for()


def live(page: "Page") -> None:
    mode(page, "live")
    address = page.url.removesuffix("/ui")

    def sent(path: str, body: object) -> bytes:
        headers = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{address}/v1/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            read: bytes = answer.read(4000)
            return read

    background = {"max_tokens": 900, "ignore_eos": True, "stream": True, "store": True}
    first = sent("completions", {"prompt": "A long time ago", **background, "background": True})
    match = re.search(rb'"id":"([^"]+)"', first)
    assert match, first
    sent(f"streams/{match.group(1).decode()}/control", {"action": "pause"})
    for k in range(70):
        sent("completions", {"prompt": f"Once upon a {k % 5}", "max_tokens": 60 + 40 * (k % 4)})
        page.wait_for_timeout(300 + 250 * (k % 3))


def mode(page: "Page", name: str) -> None:
    page.locator(f"#modes [data-mode={name}]").click()


def saved(page: "Page", name: str) -> None:
    """As a small PNG."""
    page.wait_for_timeout(300)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image = image.quantize(N_COLOURS, dither=Image.Dither.NONE)
    path = PICTURES / f"{name}.png"
    image.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size // 1000} kB")
    assert size < MAX_BYTES, "too large for the repository; use fewer colours"


SHOTS: dict[str, Callable[["Page"], None]] = {
    each.__name__: each for each in (prompt, dark, chat, compare, tree, cache, live)
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with served(sys.argv[1:2]) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, shot in SHOTS.items():
            page = begun(browser, address, "dark" if name == "dark" else "light")
            shot(page)
            saved(page, name)
            page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
