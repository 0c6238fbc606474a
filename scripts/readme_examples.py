"""Runs the examples in the pages below against `soliton serve` and inserts their output.

.venv/bin/python scripts/readme_examples.py
Starts a server with the built-in model for each page, on a free port; the pages say port 8000.
A fenced block after `<!-- example: sh -->` is a command and its output; a line of the command that
ends in a backslash or a comma continues on the next one. The block after
`<!-- example: output of the python above -->` is the output of the last Python block.
An output that differs only in ids, times and rounding stays as it is, so that a page changes only
when an answer does. tests/repository/test_readme_examples.py checks that none changes.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "commands.md",
    ROOT / "docs" / "api.md",
)
PAGE_URL = "http://127.0.0.1:8000"
SHELL = re.compile(
    r"(<!-- example: sh -->\n```console\n)\$ ((?:[^\n]*[\\,]\n)*[^\n]*\n)(.*?)(```\n)", re.S
)
PYTHON = re.compile(
    r"(```python\n)((?:(?!```).)*)"
    r"(```\n\n<!-- example: output of the python above -->\n```text\n)(.*?)(```\n)",
    re.S,
)
# What differs from run to run.
VOLATILE = re.compile(r'"(id|created|system_fingerprint|\w+_ms|\w+_per_\w+)":("[^"]*"|[\d.]+)')
NUMBER = re.compile(r"(-?\d+\.\d+(?:e-?\d+)?)")


def main() -> None:
    for page in PAGES:
        with serving() as url:
            page.write_text(with_outputs(page.read_text(), url))


@contextmanager
def serving() -> Iterator[str]:
    """The URL of a `soliton serve` that runs while the block does."""
    command = [sys.executable, "-m", "server", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert ready, "the ready line names the URL"
            yield ready[0]
        finally:
            process.kill()


def with_outputs(text: str, url: str) -> str:
    """The page with the current output of its examples, which a server at `url` answers."""

    def run(shown: str, *command: str) -> str:
        printed = output_of(*(word.replace(PAGE_URL, url) for word in command))
        printed = printed.replace(url, PAGE_URL)
        return shown if same(shown, printed) else printed

    text = SHELL.sub(lambda m: f"{m[1]}$ {m[2]}{run(m[3], 'bash', '-c', m[2])}{m[4]}", text)
    return PYTHON.sub(
        lambda m: f"{m[1]}{m[2]}{m[3]}{run(m[4], sys.executable, '-c', m[2])}{m[5]}", text
    )


def same(one: str, other: str) -> bool:
    """Equal, with numbers nearly equal: a machine may round a probability in its own way."""
    parts = [NUMBER.split(VOLATILE.sub(r'"\1":', text)) for text in (one, other)]
    if parts[0][::2] != parts[1][::2]:
        return False
    numbers = zip(parts[0][1::2], parts[1][1::2], strict=True)
    return all(math.isclose(float(a), float(b), abs_tol=2e-3) for a, b in numbers)


def output_of(*command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(f"{command[-1]} failed with exit code {result.returncode}: {result.stderr}")
    return result.stdout.rstrip("\n") + "\n"


if __name__ == "__main__":
    main()
