"""What the figures of bench/gpu must reach, and how they are shown. Knows no device.

Shares are of what the same card gave in the same run: a decode step reads its weights and what it
needs of keys and values, a prompt multiplies.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.soak.goals import Goal

from .figures import Groups

LIMITS, RIVALS, ERRORS, LOAD = "limits", "rivals", "errors", "load"
KNOBS, BOUNDARIES, FAMILIES = "knobs", "boundaries", "families"
# The cost of verifying one row; more rows may cost little more, because they read the same weights.
ROWS = (2, 4, 8, 16)


class _Least(NamedTuple):
    """A figure of a case that must be at least this."""

    name: str
    case: str
    figure: str
    least: float


class _Most(NamedTuple):
    """A figure of a case, in microseconds, that must be at most this."""

    name: str
    case: str
    figure: str
    most: float


_DECODE = (
    _Least("8B bfloat16 decode, of read bandwidth", "8B-bfloat16", "stream_share", 0.80),
    _Least("8B 4bit decode, of read bandwidth", "8B-4bit", "stream_share", 0.65),
    _Least("1B bfloat16 decode, of read bandwidth", "1B-bfloat16", "stream_share", 0.60),
)
_HOST = (
    _Most("8B bfloat16: host time per token beyond the graph", "8B-bfloat16", "host_us", 30.0),
    _Most("1B bfloat16: added by n-gram drafts that never come", "1B-bfloat16",
          "drafts_added_us", 30.0),
)  # fmt: skip
_REST = (
    _Least("8B bfloat16 at 32k, 8-bit KV, of bandwidth", "8B-bfloat16", "deep_share", 0.60),
    _Least("8B 4bit at 32k, 8-bit KV, of bandwidth", "8B-4bit", "deep_share", 0.60),
    _Least("8B bfloat16 prefill 2048, of products", "8B-bfloat16", "prefill_2048_share", 0.55),
)
_SAMPLER = (
    _Most("sampler with filters and top tokens, beyond greedy", "8B-bfloat16",
          "sampled_added_us", 20.0),
)  # fmt: skip
_MOST_ROWS = {2: 1.06, 4: 1.12, 8: 1.25}
_LEAST_LOAD_GBS = 2.0
# A step of a family, against the same in torch; and how far apart their logits are in bfloat16.
_FAMILIES = ("qwen3-moe", "gpt-oss", "gemma2")
_LEAST_TORCH_RATIO = 1.5
_MOST_FROM_TORCH = 0.1
# A compiled decoder in bfloat16 comes to 80 % of the bandwidth: nothing can be 1.3 times as fast.
_LEAST_RATIO = {"8B-bfloat16": 1.05, "1B-bfloat16": 1.05, "8B-4bit": 1.3, "8B-8bit": 1.3}
_NOT_MEASURED = "not measured"


def decode_goals(figures: Groups) -> Iterator[Goal]:
    """A goal without a figure is missed, here and below."""
    yield from (_share(goal, figures) for goal in _DECODE)
    yield from (_time(goal, figures) for goal in _HOST)


def rest_goals(figures: Groups) -> Iterator[Goal]:
    yield from (_share(goal, figures) for goal in _REST)
    yield from (_time(goal, figures) for goal in _SAMPLER)
    passes = figures.get("8B-bfloat16", {}).get("rows_ms", {})
    for n_rows, most in _MOST_ROWS.items():
        one, several = passes.get("1"), passes.get(str(n_rows))
        ratio = several / one if one and several else None
        yield _at_most(f"8B bfloat16: {n_rows} rows, to one", ratio, most, "{:.2f} x")
    loaded = figures.get(LOAD, {}).get("gbs")
    yield _at_least("loading safetensors", loaded, _LEAST_LOAD_GBS, "{:.1f} GB/s")


def family_goals(figures: Groups) -> Iterator[Goal]:
    for name in _FAMILIES:
        found = figures.get(f"{FAMILIES} {name}", {})
        own, torch = found.get("decode_ms"), found.get("torch_decode_ms")
        ratio = torch / own if own and torch else None
        yield _at_least(f"{name} decode, to torch", ratio, _LEAST_TORCH_RATIO, "{:.2f} x")
        yield _at_most(
            f"{name} logits, from torch's", found.get("from_torch"), _MOST_FROM_TORCH, "{:.1%}"
        )


def rival_goals(figures: Groups) -> Iterator[Goal]:
    for case, least in _LEAST_RATIO.items():
        yield _against_rivals(figures, case, least)


GOALS: dict[str, Callable[[Groups], Iterator[Goal]]] = {
    "decode": decode_goals, "rest": rest_goals, "families": family_goals, "rivals": rival_goals,
}  # fmt: skip
"""By what is measured."""


def _share(goal: _Least, figures: Groups) -> Goal:
    value = figures.get(goal.case, {}).get(goal.figure)
    return _at_least(goal.name, value, goal.least, "{:.0%}")


def _time(goal: _Most, figures: Groups) -> Goal:
    value = figures.get(goal.case, {}).get(goal.figure)
    return _at_most(goal.name, value, goal.most, "{:.0f} us")


def _against_rivals(figures: Groups, case: str, least: float) -> Goal:
    name, limit = f"{case.replace('-', ' ')} decode, to the best rival", f">= {least} x"
    own = figures.get(case, {}).get("stream_ms")
    rivals = _rivals_of(figures, case)
    if not own or not rivals:
        return Goal(name, _NOT_MEASURED if not own else "no rival measured", limit, met=False)
    best = min(rivals, key=lambda rival: rivals[rival])
    ratio = rivals[best] / own
    return Goal(name, f"{ratio:.2f} x {best}", limit, met=ratio >= least)


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
