"""The metrics of all replicas as one page: each sample with the name of its replica.

Owns the format of Prometheus as far as that needs it: a metric's lines stand together.
"""

import re
from collections.abc import Sequence

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .*)")


def merged(pages: Sequence[tuple[str, str]]) -> str:
    """`pages`: name and text of each replica's metrics."""
    # By metric: its head, then samples.
    heads, samples = dict[str, list[str]](), dict[str, list[str]]()
    for replica, text in pages:
        metric = ""
        for line in text.splitlines():
            if line.startswith("# "):
                metric = line.split(" ")[2]
                is_new = line not in heads.setdefault(metric, [])
                if is_new and len(heads[metric]) < 2:
                    heads[metric].append(line)
            elif match := _SAMPLE.fullmatch(line):
                name, labels, rest = match.groups()
                named = f'replica="{replica}"' + (f",{labels}" if labels else "")
                samples.setdefault(metric, []).append(f"{name}{{{named}}}{rest}")
    lines = [line for metric, head in heads.items() for line in (*head, *samples.get(metric, ()))]
    return "".join(f"{line}\n" for line in lines)
