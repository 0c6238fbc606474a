"""`python -m tests.soak [--scale X] [--json FILE] [TOPIC …]`: one line per goal; exits with 1 if
one fails.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from .goals import Goal

TOPICS = (
    "integrity", "streams", "abort", "readers", "vanish", "proxies", "liveness", "fairness",
    "overload", "trials", "emptied", "memory", "bodies", "drain", "key_timing", "fuzz_api",
    "fuzz_socket",
)  # fmt: skip


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=", ".join(TOPICS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full numbers")
    parser.add_argument("--json", type=Path, help="keep the goals as JSON")
    args = parser.parse_args(argv)
    unknown = set(args.topics) - set(TOPICS)
    if unknown:
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    rows: list[dict[str, Any]] = []
    for topic in args.topics or TOPICS:
        began = time.monotonic()
        for goal in _goals(topic, args.scale):
            rows.append({"topic": topic, **goal._asdict()})
            print(_line(topic, goal), flush=True)
        print(f"     {topic}: {time.monotonic() - began:.0f} s", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(not all(row["met"] for row in rows))


def _goals(topic: str, scale: float) -> Iterator[Goal]:
    goals: Iterator[Goal] = import_module(f"{__package__}.{topic}").measure(scale)
    return goals


def _line(topic: str, goal: Goal) -> str:
    verdict = "ok  " if goal.met else "MISS"
    return f"{verdict} {topic:<10} {goal.name}: {goal.figure} (goal: {goal.limit})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
