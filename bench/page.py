"""What a token costs the page /ui in Chromium: 10,000 from an engine that computes nothing.

usage: .venv/bin/python -m bench.page     (after `make test-page`, which installs what it needs)
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.browser_page import ready, set_value
from tests.support.client_process import CLIENTS
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

N_TOKENS = 10_000
CHROMIUM = Path("/usr/bin/chromium")
# One text in lines, as most are; and one without a break, which no block of the page divides.
TEXTS = {"in lines": b"It was a dark and stormy night.\n", "in one line": b"It was a dark night. "}
PARTS = ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")

sys.path += map(str, (CLIENTS / ".venv" / "lib").glob("python3*/site-packages"))


def main() -> None:
    from playwright.sync_api import sync_playwright

    fake = FakeEngine(max_seq_len=N_TOKENS + 100)
    with (
        live_server(fake.as_engine, keep_streams_mb=512) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, line in TEXTS.items():
            fake.model.script = (line * N_TOKENS)[:N_TOKENS]
            print(f"{name}: {measured(browser, server.url)}")
        browser.close()


def measured(browser: "Browser", url: str) -> str:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/ui")
    ready(page)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")

    def seconds() -> list[float]:
        found = session.send("Performance.getMetrics")["metrics"]
        values = {metric["name"]: metric["value"] for metric in found}
        return [values[part] for part in PARTS]

    set_value(page, "max tokens", str(N_TOKENS))
    before, began = seconds(), time.perf_counter()
    page.keyboard.press("Control+Enter")
    page.locator("#facts[data-state=ended]").wait_for(timeout=300_000)
    wall = time.perf_counter() - began
    after = seconds()
    context.close()
    costs = zip(PARTS, before, after, strict=True)
    shares = [
        f"{part.removesuffix('Duration').lower()} {1000 * (end - start) / N_TOKENS:.3f} ms"
        for part, start, end in costs
    ]
    return f"per token {', '.join(shares)}; {wall:.1f} s in all"


if __name__ == "__main__":
    main()
