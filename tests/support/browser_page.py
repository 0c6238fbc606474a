"""What a test does with the server's page in a browser, in a reader's words."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

REFUSED = "error: Failed to load resource: the server responded with a status of {} ({})"
"""What Chromium's console says of a request that the server refused."""


def ready(page: "Page") -> None:
    """Wait until the server has told the page what it serves."""
    page.locator("#modes button[aria-current=page]").wait_for()


def tokens(page: "Page") -> "Locator":
    """The elements of the tokens that are shown, in order."""
    return page.locator("section.desk:not([hidden]) .tokens .t")


def text_of(page: "Page") -> str:
    """The text as it is shown, without the prompt."""
    spaces_and_words = """(view) => [...view.querySelectorAll(".block")].map((block) =>
      [...block.childNodes].filter((node) => !node.classList?.contains("prompt"))
        .map((node) => node.textContent).join("")).join("")"""
    text: str = page.locator("section.desk:not([hidden]) .tokens").last.evaluate(spaces_and_words)
    return text


def state(page: "Page") -> "Locator":
    return page.locator("#facts")


def in_state(page: "Page", name: str) -> None:
    """Wait for a state of the stream: queued, prefilling, running, paused, ended or failed."""
    page.locator(f"#facts[data-state={name}]").wait_for()


def run_to_the_end(page: "Page") -> None:
    page.keyboard.press("Control+Enter")
    tokens(page).first.wait_for()
    in_state(page, "ended")


def press(page: "Page", name: str) -> None:
    """A button below the text, by what it does."""
    page.locator(f"section.desk:not([hidden]) [data-action={name}]").click()


def go_to(page: "Page", mode: str) -> None:
    page.locator(f"#modes [data-mode={mode}]").click()
    page.locator(f"#modes [data-mode={mode}][aria-current=page]").wait_for()


def set_value(page: "Page", label: str, value: str, *, panel: str = "Settings") -> None:
    """A setting, by its name."""
    field = page.get_by_role("region", name=panel, exact=True).get_by_label(label, exact=True)
    field.fill(value)
    field.press("Enter")


def last_request(page: "Page") -> Any:
    """The body of what the page last asked a generation route for, once it asks again."""
    with page.expect_request(lambda request: request.method == "POST") as asked:
        page.keyboard.press("Control+Enter")
    return json.loads(asked.value.post_data or "{}")


AXE = Path(__file__).parents[1] / "node" / "node_modules" / "axe-core" / "axe.min.js"


def accessibility_faults(page: "Page", rules: list[str] | None = None) -> list[str]:
    """What axe-core finds serious or critical, as `rule: element`; `rules`: only by these."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate(
        """(rules) => axe.run(document, {
          resultTypes: ['violations'],
          ...(rules && { runOnly: { type: 'rule', values: rules } }),
        })""",
        rules,
    )
    return [
        f"{fault['id']}: {node['html'][:120]} ({node.get('failureSummary', '')[:200]})"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]
