"""Runs the examples in the pages below against `soliton serve` and inserts their output.

.venv/bin/python scripts/readme_examples.py
Starts a server with the built-in model for each page, on a free port; the pages say port 8000.
A fenced block after `<!-- example: sh -->` is a command and its output; a line of the command that
ends in a backslash or a comma continues on the next one, and its variables stay for the commands
below it. The block after `<!-- example: output of the python above -->` is the output of the last
Python block; with `javascript` it is that of Node.
An output that differs only in ids, times and rounding stays as it is, so that a page changes only
when an answer does. tests/repository/test_readme_examples.py checks that none changes.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "commands.md",
    ROOT / "docs" / "api.md",
    ROOT / "docs" / "streams.md",
)
PAGE_URL = "http://127.0.0.1:8000"
SHELL = re.compile(
    r"(<!-- example: sh -->\n```console\n)\$ ((?:[^\n]*[\\,]\n)*[^\n]*\n)(.*?)(```\n)", re.S
)
PROGRAM = (
    r"(```{0}\n)((?:(?!```).)*)"
    r"(```\n\n<!-- example: output of the {0} above -->\n```text\n)(.*?)(```\n)"
)
PYTHON = re.compile(PROGRAM.format("python"), re.S)
JAVASCRIPT = re.compile(PROGRAM.format("javascript"), re.S)
# Runs a command with the variables of those before it, which the file has.
SESSION = "set -a; . {file}; trap 'export -p > {file}' EXIT\n{command}"
# What differs from run to run.
VOLATILE = re.compile(r'"(id|created|system_fingerprint|\w+_ms|\w+_per_\w+)":("[^"]*"|[\d.]+)')
NUMBER = re.compile(r"(-?\d+\.\d+(?:e-?\d+)?)")


def main() -> None:
    for page in PAGES:
        with serving() as url:
            text = with_outputs(page.read_text(), url)
            page.write_text(with_javascript_outputs(text, url))


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
    """The page with the current output of its examples, which a server at `url` answers; those in
    JavaScript stay as they are.
    """
    with tempfile.NamedTemporaryFile() as file:

        def shell(m: re.Match[str]) -> str:
            command = SESSION.format(file=file.name, command=m[2])
            return f"{m[1]}$ {m[2]}{_printed(m[3], url, 'bash', '-c', command)}{m[4]}"

        text = SHELL.sub(shell, text)
    return _with_programs(text, url, PYTHON, sys.executable, "-c")


def with_javascript_outputs(text: str, url: str) -> str:
    """The same for the examples in JavaScript, which need Node."""
    return _with_programs(text, url, JAVASCRIPT, "node", "--input-type=module", "-e")


def _with_programs(text: str, url: str, block: re.Pattern[str], *program: str) -> str:
    return block.sub(
        lambda m: f"{m[1]}{m[2]}{m[3]}{_printed(m[4], url, *program, m[2])}{m[5]}", text
    )


def _printed(shown: str, url: str, *command: str) -> str:
    """What the command prints; `shown` if that is the same."""
    printed = output_of(*(word.replace(PAGE_URL, url) for word in command)).replace(url, PAGE_URL)
    return shown if same(shown, printed) else printed


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
