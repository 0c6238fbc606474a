"""The checks that need an NVIDIA GPU, in six commands of at most ten minutes.

    python3 scripts/gpu_check.py [COMMAND] [--only STEP …] [--out DIR]

COMMAND: first, second, families, knobs, rivals or train.

Uses the interpreter's packages, not the server's, and no network. What is compiled comes from
build/gpu-carry.tar.xz, which scripts/gpu_carry.py makes elsewhere; without it, it is compiled
first. Exits with 1 when a step did not run or a goal is missed. docs/kernels.md says how to read
the results.

Owns the command line, what the machine is, and the order of the stages.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # imports below come from the checkout, not from installed packages

from bench.gpu.goals import GOALS  # noqa: E402
from scripts import gpu_carry  # noqa: E402
from scripts.gpu_plan import BUILD, COMMANDS, JUNIT, WORK, Machine, Stage  # noqa: E402
from scripts.gpu_report import Report  # noqa: E402
from scripts.gpu_steps import Run, Step, run_stage  # noqa: E402


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", default="first", choices=COMMANDS)
    parser.add_argument(
        "--out", type=Path, help="directory for the results (default: $OUT, else gpu-results)"
    )
    parser.add_argument("--only", nargs="+", metavar="STEP", help="run these steps alone")
    args = parser.parse_args(argv)
    began = time.monotonic()
    out = (args.out or Path(os.environ.get("OUT") or ROOT / "gpu-results")).resolve()
    WORK.mkdir(parents=True, exist_ok=True)
    JUNIT.unlink(missing_ok=True)  # a call before this one may have left it
    gpu_carry.add_tools_to_path()
    command = COMMANDS[args.command]
    machine = look_around()
    stages = command.stages(machine, out)
    if args.only:
        names = {step.name for stage in stages for step in stage}
        if unknown := set(args.only) - names:
            parser.error(f"no step {', '.join(sorted(unknown))}; steps: {', '.join(sorted(names))}")
        stages = [[step for step in stage if step.name in (BUILD, *args.only)] for stage in stages]
    report = Report(out, {"command": args.command, **facts(machine)})
    run_stages(stages, report, deadline=began + command.time_s)
    report.judge([goal for name in command.judges for goal in GOALS[name](report.figures)])
    return 0 if report.is_good else 1


def look_around() -> Machine:
    """The machine, after the carried modules have been put in place."""
    no_binaries = gpu_carry.install()
    if gpu_carry.is_emulated():
        return Machine("rehearsal", no_binaries=no_binaries, no_sanitizer="a rehearsal",
                       is_rehearsal=True)  # fmt: skip
    no_gpu = gpu = capability = ""
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60)
        gpu, capability = answer.stdout.splitlines()[0].rsplit(", ", 1)
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as error:
        no_gpu = f"no NVIDIA GPU: nvidia-smi: {error}"

    def absent(program: str) -> str:
        return "" if shutil.which(program) else f"{program} is not in PATH"

    return Machine(
        gpu=gpu,
        capability=capability,
        no_binaries=no_binaries,
        no_gpu=no_gpu,
        no_nvcc=absent("nvcc"),
        no_sanitizer=absent("compute-sanitizer"),
        no_ncu=absent("ncu"),
    )


def facts(machine: Machine) -> dict[str, Any]:
    return {
        "gpu": machine.gpu or machine.no_gpu,
        "compute_capability": machine.capability,
        "binaries": machine.no_binaries or "carried",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "transformers")},
        "cores": os.cpu_count(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def run_stages(stages: Sequence[Stage], report: Report, *, deadline: float) -> None:
    """Runs what can run before the time.monotonic() `deadline`."""
    for stage in stages:
        left_s = deadline - time.monotonic()
        reasons = {step.name: why_not(step, report, left_s=left_s) for step in stage}
        for step in stage:
            if reason := reasons[step.name]:
                report.end(step, Run(f"skipped: {reason}", "", 0.0, {}))
        runnable = [step for step in stage if not reasons[step.name]]
        run_stage(runnable, WORK, ROOT, time_s=left_s, watcher=report)


def why_not(step: Step, report: Report, *, left_s: float) -> str:
    """Why a step cannot run; empty if it can."""
    if step.missing:
        return step.missing
    if (before := report.steps.get(step.after)) and before["reason"]:
        return f"{step.after}: {before['reason']}"
    return "" if left_s > 0 else "the time of this command is over"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
