"""Writes the table of clients and features in docs/clients.md from tests/support/client_matrix.py.

The table is between `<!-- clients -->` and `<!-- end -->`.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support.client_matrix import FEATURES, MATRIX, Absent  # noqa: E402

PAGE = ROOT / "docs" / "clients.md"
TABLE = re.compile(r"(<!-- clients -->\n\n).*?(\n<!-- end -->)", re.DOTALL)


def page() -> str:
    """docs/clients.md with its table as it should be."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}{match[2]}", PAGE.read_text())


def table() -> str:
    """One row per client; a number is that of the reason below why there is no test."""
    reasons: dict[str, int] = {}
    rows = [f"| client | {' | '.join(FEATURES)} |", f"|---|{'---|' * len(FEATURES)}"]
    for client, cells in MATRIX.items():
        shown = [
            f"no ({reasons.setdefault(cell.why, len(reasons) + 1)})"
            if isinstance(cell, Absent)
            else "tested"
            for cell in (cells[feature] for feature in FEATURES)
        ]
        rows.append(f"| {client} | {' | '.join(shown)} |")
    listed = [f"{number}. {why}" for why, number in reasons.items()]
    return "\n".join([*rows, "", "Where there is no test:", "", *listed, ""])


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
