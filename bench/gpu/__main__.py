"""`python -m bench.gpu own|RIVAL --figures FILE [CASE …]`: writes figures as they are measured.

A case is a size and a format, as 8B-4bit. `own` measures the limits of the card before it, and the
speed of loading where no case is named. Knows the order of what is measured, and nothing of how.
"""

import argparse
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

# Rivals compile at the same time as each other and a build. Set before torch is imported.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")

from engine.device.open import open_ops
from engine.device.ops import Ops

from . import gate, limits, own
from .figures import Figures
from .goals import LIMITS, LOAD
from .goals import RIVALS as RIVALS_GROUP
from .rivals import RIVALS
from .shapes import CONFIGS

OWN_CASES = ("8B-bfloat16", "8B-4bit", "1B-bfloat16", "8B-8bit")
DEEP_CASES = ("8B-bfloat16", "8B-4bit")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("what", choices=("own", *RIVALS))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--figures", type=Path, required=True, help="the file that gets them")
    parser.add_argument("--work", type=Path, default=Path("build/gpu"), help="for what is built")
    parser.add_argument("--gate", type=Path, help="where a rival that is ready waits")
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    figures = Figures(args.figures)
    if args.what == "own":
        measure_own(figures, args.cases, args.work)
    else:
        measure_rival(figures, args.what, args.cases, args.gate, args.work)
    return 1 if "errors" in figures.groups else 0


def measure_own(figures: Figures, cases: list[str], work: Path) -> None:
    card = limits.measure(work)
    figures.put(LIMITS, asdict(card))
    for case in cases or OWN_CASES:
        with figures.part(case):
            _measure_case(figures, case, card)
        own.release()
    if not cases:
        with figures.part(LOAD):
            figures.put(LOAD, own.measure_loading(CONFIGS["1B"], _ops("bfloat16"), work / "load"))


def measure_rival(
    figures: Figures, rival: str, cases: list[str], waits_at: Path | None, work: Path
) -> None:
    """Prepares all cases, then measures them in turn."""
    ready = {}
    for case in cases:
        size, format_ = case.split("-")
        with figures.part(f"{rival} {case}"):
            ready[case] = RIVALS[rival](CONFIGS[size], format_, work / f"{rival}-{case}")
    if waits_at is not None:
        gate.wait(waits_at)
    for case, seconds_per_token in ready.items():
        with figures.part(f"{rival} {case}"):
            figures.put(RIVALS_GROUP, {f"{rival} {case}": 1e3 * seconds_per_token()})


def _measure_case(figures: Figures, case: str, card: limits.Limits) -> None:
    size, format_ = case.split("-")
    config, ops = CONFIGS[size], _ops(format_)
    weights = own.random_weights(config, ops, "cuda")
    put, amount = partial(figures.put, case), own.Amount()
    own.measure(config, ops, card, weights=weights, amount=amount, put=put)
    own.release()
    if case in DEEP_CASES:
        deep = _ops(format_, kv_cache="8bit")
        own.measure_deep(config, deep, card, weights=weights, amount=amount, put=put)


def _ops(format_: str, *, kv_cache: str = "auto") -> Ops:
    quantize = "none" if format_ == "bfloat16" else format_
    return open_ops(device="cuda", quantize=quantize, kv_cache=kv_cache)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
