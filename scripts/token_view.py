"""Draws docs/token-view.svg, a picture in docs/commands.md: a terminal with COMMAND.

.venv/bin/python scripts/token_view.py
The text is what the command prints. The colours are the picture's: the prompt line, and each `p`
by its value, green for what the model expected, orange for a surprise.
"""

import os
import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "token-view.svg"
COMMAND = ("complete", "Once upon a time", "--logprobs", "3", "--max-tokens", "14", "--seed", "7")

_LINE, _TOP, _LEFT, _WIDTH = 20, 58, 20, 740
_ROW = re.compile(r'( *\d+  ".*?" +)(\d\.\d{4})(.*)')
_COLOURS = ((0.8, "#7ee787"), (0.5, "#d2e06c"), (0.4, "#f2cc60"), (0.0, "#ff9b72"))


def main() -> None:
    PICTURE.write_text(drawn(output()))


def output() -> str:
    """What the command prints."""
    return subprocess.run(
        [sys.executable, "-m", "server", *COMMAND],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def drawn(text: str) -> str:
    """The picture of a terminal with the command and this output."""
    words = " ".join(f'"{word}"' if " " in word else word for word in COMMAND)
    lines = [f'<tspan fill="#79c0ff">$ soliton {escape(words, quote=False)}</tspan>']
    lines += [_coloured(line) for line in text.rstrip("\n").split("\n")]
    rows = "\n".join(
        f'  <text x="{_LEFT}" y="{_TOP + n * _LINE}">{line}</text>'
        for n, line in enumerate(lines)
        if line
    )
    height = _TOP + len(lines) * _LINE
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" \
viewBox="0 0 {_WIDTH} {height}" role="img">
  <title>soliton {escape(words)}</title>
  <style>text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; \
fill: #e6edf3; white-space: pre; }}</style>
  <rect width="100%" height="100%" rx="8" fill="#0d1117"/>
  <circle cx="24" cy="20" r="6" fill="#ff5f57"/>
  <circle cx="44" cy="20" r="6" fill="#febc2e"/>
  <circle cx="64" cy="20" r="6" fill="#28c840"/>
{rows}
</svg>
"""


def _coloured(line: str) -> str:
    row = _ROW.fullmatch(line)
    if row is None:
        return f'<tspan fill="#8b949e">{escape(line, quote=False)}</tspan>' if line else ""
    colour = next(colour for least, colour in _COLOURS if float(row[2]) >= least)
    before, after = (escape(part, quote=False) for part in (row[1], row[3]))
    return f'{before}<tspan fill="{colour}">{row[2]}</tspan>{after}'


if __name__ == "__main__":
    main()
