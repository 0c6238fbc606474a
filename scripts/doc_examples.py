"""Runs the Python examples in docs/generator.md and docs/sampling.md and inserts their output.

.venv/bin/python scripts/doc_examples.py
The blocks of a page run in order, in one namespace. The output of a block is the `text` block that
follows it. Needs no server, unlike readme_examples.py.
"""

import contextlib
import io
import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "generator.md", DOCS / "sampling.md")
_EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n.*?```\n)?", re.S)


def main() -> None:
    for page in PAGES:
        page.write_text(with_outputs(page.read_text()))


def with_outputs(text: str) -> str:
    """The page with the current output of its examples."""
    namespace: dict[str, object] = {}

    def run(example: re.Match[str]) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(example[1], "example", "exec"), namespace)
        block = f"```python\n{example[1]}```\n"
        return f"{block}\n```text\n{output.getvalue()}```\n" if output.getvalue() else block

    return _EXAMPLE.sub(run, text)


if __name__ == "__main__":
    main()
