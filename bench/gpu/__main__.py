"""`python -m bench.gpu WHAT [CASE …] [--figures FILE]`: one measurement of scripts/gpu_check.py.

A case is a size and a format, as 8B-4bit. Figures are written as they are measured. Knows the order
of what is measured, and nothing of how.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

# Rivals compile at the same time as each other. Set before torch is imported.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")

from engine.device.cuda.ops import CudaOps

from . import families, gate, limits, own
from .boundaries import measure_boundaries
from .figures import Figures
from .goals import BOUNDARIES, FAMILIES, KNOBS, LIMITS, LOAD
from .goals import RIVALS as RIVALS_GROUP
from .place import config_of, open_device
from .rivals import RIVALS
from .weights import random_weights

WHAT = ("smoke", "decode", "rest", "families", "knobs", "boundaries", "one-pass")
DECODE_CASES = ("8B-bfloat16", "8B-4bit", "1B-bfloat16")
REST_CASES = (*DECODE_CASES, "8B-8bit")
DEEP_CASES = ("8B-bfloat16", "8B-4bit")

Measure = Callable[[own.Bench, str], None]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("what", choices=(*WHAT, *RIVALS))
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--figures", type=Path, default=Path("build/gpu/figures.json"))
    parser.add_argument("--gate", type=Path, help="where a rival that is ready waits")
    args = parser.parse_args(argv)
    work = args.figures.parent
    work.mkdir(parents=True, exist_ok=True)
    figures = Figures(args.figures)
    match args.what:
        case "smoke":
            from . import smoke  # its imports, such as hypothesis, are no concern of the others

            return smoke.main()
        case "one-pass":
            one_pass()
        case "decode":
            each_case(figures, args.cases or DECODE_CASES, partial(decode, figures))
        case "rest":
            each_case(figures, args.cases or REST_CASES, partial(rest, figures))
            with figures.part(LOAD):
                ops = open_device("bfloat16")
                figures.put(LOAD, own.measure_loading(config_of("1B"), ops, work / "load"))
        case "families":
            each_family(figures, args.cases or tuple(families.CASES), work / "families")
        case "boundaries":
            each_case(figures, args.cases or DECODE_CASES, partial(boundaries, figures))
        case "knobs":
            each_case(figures, args.cases or DECODE_CASES, partial(turn_knobs, figures))
        case rival:
            measure_rival(figures, rival, args.cases, args.gate, work)
    return 1 if "errors" in figures.groups else 0


def each_case(figures: Figures, cases: Sequence[str], measure: Measure) -> None:
    """Measures the card, then each case, whose weights are gone before the next one."""
    card = limits.measure()
    figures.put(LIMITS, asdict(card))
    for case in cases:
        size, format_ = case.split("-")
        with figures.part(case):
            config, ops = config_of(size), open_device(format_)
            measure(own.Bench.of(config, ops, random_weights(config, ops), card), case)
        own.release()


def each_family(figures: Figures, names: Sequence[str], work: Path) -> None:
    card = limits.measure()
    figures.put(LIMITS, asdict(card))
    for name in names:
        group = f"{FAMILIES} {name}"
        with figures.part(group):
            families.measure(name, card, work, partial(figures.put, group))
        own.release()


def decode(figures: Figures, bench: own.Bench, case: str) -> None:
    own.measure_decode(bench, partial(figures.put, case))


def rest(figures: Figures, bench: own.Bench, case: str) -> None:
    own.measure_rest(bench, partial(figures.put, case))
    if case in DEEP_CASES:
        own.measure_deep(bench, _deep_ops(bench), partial(figures.put, case))


def boundaries(figures: Figures, bench: own.Bench, case: str) -> None:
    measure_boundaries(bench, partial(figures.put, f"{BOUNDARIES} {case}"))


def turn_knobs(figures: Figures, bench: own.Bench, case: str) -> None:
    deep_ops = _deep_ops(bench) if case in DEEP_CASES else None
    own.measure_knobs(bench, deep_ops, partial(figures.put, f"{KNOBS} {case}"))


def _deep_ops(bench: own.Bench) -> CudaOps:
    return open_device(bench.ops.format, kv_cache="8bit")


def measure_rival(
    figures: Figures, rival: str, cases: list[str], waits_at: Path | None, work: Path
) -> None:
    """Prepares all cases, then measures them in turn."""
    ready = {}
    for case in cases:
        size, format_ = case.split("-")
        with figures.part(f"{rival} {case}"):
            ready[case] = RIVALS[rival](config_of(size), format_, work / f"{rival}-{case}")
    if waits_at is not None:
        gate.wait(waits_at)
    for case, seconds_per_token in ready.items():
        with figures.part(f"{rival} {case}"):
            figures.put(RIVALS_GROUP, {f"{rival} {case}": 1e3 * seconds_per_token()})


def one_pass() -> None:
    """For a profiler: a pass far into a sequence and a token drawn from it, of models of one layer,
    between cudaProfilerStart and cudaProfilerStop.
    """
    for case in DEEP_CASES:
        size, format_ = case.split("-")
        config, ops = config_of(size, n_layers=1), open_device(format_, kv_cache="8bit")
        own.run_profiled(config, ops, random_weights(config, ops))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
