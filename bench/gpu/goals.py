"""What the figures of bench/gpu must reach, and how they are shown. Knows no device.

Shares are of what the same card gave in the same run: a decode step reads its weights and what it
needs of keys and values, a prompt multiplies.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.soak.goals import Goal

from .figures import Groups

LIMITS, RIVALS, ERRORS, LOAD = "limits", "rivals", "errors", "load"
# The cost of verifying one row; more rows may cost little more, because they read the same weights.
ROWS = (2, 4, 8, 16)


class _Share(NamedTuple):
    """At least a share of a limit."""

    name: str
    case: str
    figure: str
    least: float


_SHARES = (
    _Share("8B bfloat16 decode, of read bandwidth", "8B-bfloat16", "stream_share", 0.80),
    _Share("8B 4bit decode, of read bandwidth", "8B-4bit", "stream_share", 0.65),
    _Share("1B bfloat16 decode, of read bandwidth", "1B-bfloat16", "stream_share", 0.60),
    _Share("8B bfloat16 at 32k, 8-bit KV, of bandwidth", "8B-bfloat16", "deep_share", 0.60),
    _Share("8B 4bit at 32k, 8-bit KV, of bandwidth", "8B-4bit", "deep_share", 0.60),
    _Share("8B bfloat16 prefill 2048, of products", "8B-bfloat16", "prefill_2048_share", 0.55),
)
_MOST_ROWS = {2: 1.05, 4: 1.10, 8: 1.25}
_MOST_HOST_US = 30.0
_LEAST_RATIO = 1.3
_LEAST_LOAD_GBS = 2.0
_AGAINST_RIVALS = ("8B-bfloat16", "1B-bfloat16", "8B-4bit", "8B-8bit")
_NOT_MEASURED = "not measured"


def benchmark_goals(figures: Groups) -> list[Goal]:
    """One line per goal; a goal without a figure is missed."""
    return [*_goals(figures)]


def _goals(figures: Groups) -> Iterator[Goal]:
    for name, case, figure, least in _SHARES:
        value = figures.get(case, {}).get(figure)
        yield _at_least(name, value, least, "{:.0%}")
    yield _at_most(
        "8B bfloat16: host time per token beyond the graph",
        figures.get("8B-bfloat16", {}).get("host_us"), _MOST_HOST_US, "{:.0f} us",
    )  # fmt: skip
    verify = figures.get("8B-bfloat16", {}).get("rows_ms", {})
    for n_rows, most in _MOST_ROWS.items():
        one, several = verify.get("1"), verify.get(str(n_rows))
        ratio = several / one if one and several else None
        yield _at_most(f"8B bfloat16: {n_rows} rows, to one", ratio, most, "{:.2f} x")
    yield _at_least(
        "loading safetensors", figures.get(LOAD, {}).get("gbs"), _LEAST_LOAD_GBS, "{:.1f} GB/s"
    )
    for case in _AGAINST_RIVALS:
        yield _against_rivals(figures, case)


def _against_rivals(figures: Groups, case: str) -> Goal:
    name = f"{case.replace('-', ' ')} decode, to the best rival"
    own = figures.get(case, {}).get("stream_ms")
    rivals = _rivals_of(figures, case)
    if not own or not rivals:
        missing = _NOT_MEASURED if not own else "no rival measured"
        return Goal(name, missing, f">= {_LEAST_RATIO} x", met=False)
    best = min(rivals, key=lambda rival: rivals[rival])
    ratio = rivals[best] / own
    limit = f">= {_LEAST_RATIO} x"
    return Goal(name, f"{ratio:.2f} x {best}", limit, met=ratio >= _LEAST_RATIO)


def _rivals_of(figures: Groups, case: str) -> dict[str, float]:
    """Milliseconds per token, by the name of the rival."""
    return {
        name.removesuffix(f" {case}"): ms
        for name, ms in figures.get(RIVALS, {}).items()
        if name.endswith(f" {case}")
    }


def _at_least(name: str, value: float | None, least: float, form: str) -> Goal:
    limit = f">= {form.format(least)}"
    if value is None:
        return Goal(name, _NOT_MEASURED, limit, met=False)
    return Goal(name, form.format(value), limit, met=value >= least)


def _at_most(name: str, value: float | None, most: float, form: str) -> Goal:
    limit = f"<= {form.format(most)}"
    if value is None:
        return Goal(name, _NOT_MEASURED, limit, met=False)
    return Goal(name, form.format(value), limit, met=value <= most)


def figure_lines(figures: Groups) -> list[str]:
    """All figures as a table."""
    lines = []
    if limits := figures.get(LIMITS):
        lines.append("card: " + ", ".join(f"{name} {value:.3g}" for name, value in limits.items()))
    for case in figures:
        if "stream_ms" in figures[case]:
            lines += _case_lines(case, figures)
    if load := figures.get(LOAD):
        lines.append("load: " + ", ".join(f"{name} {value:.2f}" for name, value in load.items()))
    lines += [f"error: {name}: {error}" for name, error in figures.get(ERRORS, {}).items()]
    return lines


def _case_lines(case: str, figures: Groups) -> Iterator[str]:
    own = figures[case]
    flat = {name: value for name, value in own.items() if isinstance(value, float)}
    words = [
        f"{name} {value:.0%}" if name.endswith("share") else f"{name} {value:.4g}"
        for name, value in flat.items()
    ]
    yield f"{case}: " + ", ".join(words)
    if rows := own.get("rows_ms"):
        yield "  ms of a pass by rows: " + ", ".join(f"{n}: {ms:.3f}" for n, ms in rows.items())
    if rivals := _rivals_of(figures, case):
        yield "  rivals, ms: " + ", ".join(f"{name} {ms:.3f}" for name, ms in rivals.items())
    for op in own.get("profile", ()):
        yield f"  {op['us']:8.1f} us  {op['count']:3} x {op['name']}  {op['gbs']:.0f} GB/s"
