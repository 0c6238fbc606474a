"""Runs the examples in README.md and docs/api.md against a server on port 8000 and inserts their
output.

Start the built-in model first (`make serve`); then: .venv/bin/python scripts/readme_examples.py
A fenced block after `<!-- example: sh -->` is a command and its output; a line of the command that
ends in a backslash or a comma continues on the next one. The block after
`<!-- example: output of the python above -->` is the output of the last Python block.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "api.md")
SHELL = re.compile(
    r"(<!-- example: sh -->\n```console\n)\$ ((?:[^\n]*[\\,]\n)*[^\n]*\n)(.*?)(```\n)", re.S
)
PYTHON = re.compile(
    r"(```python\n)((?:(?!```).)*)"
    r"(```\n\n<!-- example: output of the python above -->\n```text\n)(.*?)(```\n)",
    re.S,
)


def main() -> None:
    for page in PAGES:
        page.write_text(with_outputs(page.read_text()))


def with_outputs(text: str) -> str:
    """The page with the current output of its examples."""
    text = SHELL.sub(lambda m: f"{m[1]}$ {m[2]}{run('bash', '-c', m[2])}{m[4]}", text)
    return PYTHON.sub(lambda m: f"{m[1]}{m[2]}{m[3]}{run(sys.executable, '-c', m[2])}{m[5]}", text)


def run(*command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if result.returncode:
        sys.exit(f"{command[-1]} failed with exit code {result.returncode}: {result.stderr}")
    return result.stdout.rstrip("\n") + "\n"


if __name__ == "__main__":
    main()
