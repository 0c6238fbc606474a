"""The checks that need an NVIDIA GPU: build, tests, sanitizers, benchmark.

    python scripts/gpu_check.py [STEP …] [--out DIR]

Uses the packages of the interpreter, except the server's, and no network, for at most eight
minutes. Prints a table of goals at the end and writes it with all figures to results.json, next to
the logs. Exits with 1 when a step did not run or a goal is missed.

Owns the plan, the goals of each step, and the table. bench/gpu owns the measurements.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # imports below come from the checkout, not from installed packages

from bench.gpu.figures import Groups, merged  # noqa: E402
from bench.gpu.goals import benchmark_goals, figure_lines  # noqa: E402
from scripts.gpu_steps import Run, Step, run_stage  # noqa: E402
from tests.soak.goals import Goal  # noqa: E402

WORK = ROOT / "build" / "gpu"
DRIVER = WORK / "native" / "csrc" / "cuda" / "cuda_driver"
JUNIT = WORK / "tests.xml"
RESULTS = "results.json"
TIME_S = 470.0  # limit for all steps together
OUTPUT = 11_500  # characters of the summary: all of it must fit in the tail of a long output
LOG_TAIL = 1_000  # characters shown of a failed step's log

# The steps of a stage run at once, the stages one after the other.
Stage = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan depends on. Each `no_*` says why something is missing, or is empty."""

    gpu: str
    capability: str  # such as 9.0
    no_gpu: str = ""
    no_nvcc: str = ""
    no_sanitizer: str = ""
    no_exllamav2: str = ""


@dataclass(slots=True)
class Report:
    """The results so far."""

    machine: dict[str, Any]
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    figures: Groups = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether all steps ran and all goals are met."""
        return all(not step["reason"] for step in self.steps.values()) and all(
            goal.met for goal in self.goals
        )

    def write(self, file: Path) -> None:
        content = {
            "machine": self.machine,
            "steps": self.steps,
            "goals": [goal._asdict() for goal in self.goals],
            "figures": self.figures,
        }
        file.write_text(json.dumps(content, indent=1) + "\n")


def main(argv: Sequence[str]) -> int:
    names = [step.name for stage in plan(Machine("", "")) for step in stage]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(names))
    parser.add_argument(
        "--out", type=Path, help="directory for the results (default: $OUT, else gpu-results)"
    )
    args = parser.parse_args(argv)
    if unknown := set(args.steps) - set(names):
        parser.error(f"unknown step: {', '.join(sorted(unknown))}; steps: {', '.join(names)}")
    out = args.out or Path(os.environ.get("OUT") or ROOT / "gpu-results")
    for directory in (out, WORK):
        directory.mkdir(parents=True, exist_ok=True)
    machine = look_around()
    report = Report(facts(machine))
    run_plan(chosen(plan(machine), args.steps), out, report)
    print(summary(report, out))
    return 0 if report.is_good else 1


def look_around() -> Machine:
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
        no_gpu=no_gpu,
        no_nvcc=absent("nvcc"),
        no_sanitizer=absent("compute-sanitizer"),
        no_exllamav2="" if find_spec("exllamav2") else "exllamav2 is not installed",
    )


def facts(machine: Machine) -> dict[str, Any]:
    return {
        "gpu": machine.gpu or machine.no_gpu,
        "compute_capability": machine.capability,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "transformers", "exllamav2")},
        "cores": os.cpu_count(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def plan(machine: Machine) -> list[Stage]:
    """Every step, with what `machine` lacks for it.

    Rivals compile for a minute or two during the build, and are measured after it, one after the
    other.
    """
    no_gpu, no_tool = machine.no_gpu, machine.no_gpu or machine.no_sanitizer
    return [
        [
            Step(
                name="build",
                command=["sh", "-ec", build_script(machine.capability)],
                limit_s=180,
                log="build.log",
                goals=partial(passed, "native modules built"),
                missing=no_gpu or machine.no_nvcc,
            ),
            rival("compiled", "8B-bfloat16", no_gpu),
            rival("compiled", "1B-bfloat16", no_gpu),
            rival("compiled", "8B-4bit", no_gpu),
            rival("compiled", "8B-8bit", no_gpu),
            rival("transformers", "8B-bfloat16", no_gpu),
            rival("transformers", "1B-bfloat16", no_gpu),
            rival("exllamav2", "8B-4bit", no_gpu or machine.no_exllamav2, is_optional=True),
        ],
        [
            Step(
                name="tests",
                command=pytest_command(),
                limit_s=130,
                log="tests.log",
                goals=tests_goals,
                after="build",
                missing=no_gpu,
            ),
            sanitizer("memcheck", [], no_tool),
            sanitizer("racecheck", ["short"], no_tool),
            sanitizer("synccheck", ["short"], no_tool),
        ],
        [
            Step(
                name="bench",
                command=[sys.executable, "-m", "bench.gpu", "own", *figures_of("own")],
                limit_s=150,
                log="bench.log",
                after="build",
                missing=no_gpu,
                figures=WORK / "own.json",
            ),
        ],
    ]


def build_script(capability: str) -> str:
    """Builds both native modules and the driver of the sanitizers, for this GPU only."""
    architecture = {"9.0": "90a"}.get(capability, capability.replace(".", ""))
    native = WORK / "native"
    return (
        f"cmake -G Ninja -S . -B {native} -DCMAKE_BUILD_TYPE=Release"
        f" -DPython_EXECUTABLE={sys.executable}"
        f" -DCMAKE_CUDA_ARCHITECTURES={architecture}-real -DCMAKE_CUDA_FLAGS=-lineinfo\n"
        f"cmake --build {native}\n"
        f"cmake --build {native} --target cuda_driver\n"
        f"cp {native}/_cpu*.so {native}/csrc/cuda/_cuda*.so engine/native/\n"
    )


def figures_of(name: str) -> list[str | Path]:
    return ["--figures", WORK / f"{name}.json", "--work", WORK]


def rival(name: str, case: str, missing: str, *, is_optional: bool = False) -> Step:
    own_name = f"{name}-{case}"
    return Step(
        name=own_name,
        command=[
            sys.executable, "-m", "bench.gpu", name, case, *figures_of(own_name),
            "--gate", WORK / own_name,
        ],
        limit_s=200,
        log="rivals.log",
        missing=missing,
        is_optional=is_optional,
        gate=WORK / own_name,
        figures=WORK / f"{own_name}.json",
    )  # fmt: skip


def sanitizer(tool: str, options: Sequence[str], missing: str) -> Step:
    return Step(
        name=tool,
        command=["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", DRIVER, *options],
        limit_s=130,
        log=f"{tool}.log",
        goals=partial(sanitizer_goals, tool),
        after="build",
        missing=missing,
    )


def pytest_command() -> list[str | Path]:
    """Runs the tests marked `cuda`, without the options of pyproject.toml, because the plugins they
    need may not be installed.
    """
    files = sorted(ROOT.glob("tests/engine/device/test_cuda_*.py"))
    several = ["-n", "4", "--dist", "loadfile"] if find_spec("xdist") else []
    return [
        sys.executable, "-m", "pytest", "-q", "-ra", "-m", "cuda", "-o", "addopts=",
        "-o", "filterwarnings=default", f"--junitxml={JUNIT}", *several, *files,
    ]  # fmt: skip


def passed(name: str, run: Run) -> list[Goal]:
    figure = run.reason or f"in {run.seconds:.0f} s"
    return [Goal(name, figure, "exit code 0", not run.reason)]


def tests_goals(run: Run) -> list[Goal]:
    name, limit = "ops, replay, generator on the device", "0 failed, some passed"
    try:
        suites = ElementTree.parse(JUNIT).getroot().iter("testsuite")
    except (OSError, ElementTree.ParseError) as error:
        return [Goal(name, run.reason or f"no report: {error}", limit, met=False)]
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for key in counts:
            counts[key] += int(suite.get(key, 0))
    n_bad = counts["failures"] + counts["errors"]
    n_passed = counts["tests"] - n_bad - counts["skipped"]
    figure = f"{n_passed} passed, {n_bad} failed, {counts['skipped']} skipped"
    if run.reason and not n_bad:
        figure += f", {run.reason}"
    return [Goal(name, figure, limit, not run.reason and n_passed > 0 and not n_bad)]


def sanitizer_goals(tool: str, run: Run) -> list[Goal]:
    """Met if the driver finished and the tool reports no findings."""
    found = re.findall(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)", run.log)
    figure = f"{sum(map(int, found))} found" if found else run.reason or "no summary"
    met = not run.reason and bool(found) and not any(map(int, found))
    return [Goal(f"{tool} of every kernel", figure, "0 found", met)]


def chosen(stages: Sequence[Stage], names: Sequence[str]) -> list[Stage]:
    """Only the steps with these names; all steps without names."""
    if not names:
        return list(stages)
    kept = [[step for step in stage if step.name in names] for stage in stages]
    return [stage for stage in kept if stage]


def run_plan(stages: Sequence[Stage], out: Path, report: Report) -> None:
    """Runs what can run, and writes the report after every step, because the machine may be taken
    away.
    """
    deadline = time.monotonic() + TIME_S
    has_figures = any(step.figures for stage in stages for step in stage)

    def tell(step: Step, run: Run) -> None:
        report.steps[step.name] = {"seconds": round(run.seconds, 1), "reason": run.reason}
        report.goals += step.goals(run)
        report.figures = merged((report.figures, run.figures))
        report.write(out / RESULTS)
        print(f"{step.name}: {run.reason or 'ok'} ({run.seconds:.0f} s)", flush=True)
        if run.reason and step.figures is None:
            report.steps[step.name]["log"] = run.log[-LOG_TAIL:]

    for stage in stages:
        runnable = []
        for step in stage:
            if reason := why_not(step, report, left_s=deadline - time.monotonic()):
                if not step.is_optional:
                    tell(step, Run(f"skipped: {reason}", "", 0.0, {}))
            else:
                runnable.append(step)
        run_stage(runnable, out, ROOT, time_s=deadline - time.monotonic(), on_end=tell)
    if has_figures:
        report.goals += benchmark_goals(report.figures)
    report.write(out / RESULTS)


def why_not(step: Step, report: Report, *, left_s: float) -> str:
    """Why a step cannot run; empty if it can."""
    if step.missing:
        return step.missing
    if (before := report.steps.get(step.after)) and before["reason"]:
        return f"{step.after}: {before['reason']}"
    return "" if left_s > 0 else f"the time limit of {TIME_S:.0f} s is over"


def summary(report: Report, out: Path) -> str:
    """The whole result, short enough to fit in the end of a long output."""
    goals = _table(report.goals)
    n_missed = sum(not goal.met for goal in report.goals)
    verdict = [
        " ".join(f"{key} {value}" for key, value in report.machine.items()),
        f"{len(report.goals) - n_missed} goals met, {n_missed} missed; all in {out}",
    ]
    needed = "\n".join(["", *goals, *verdict])
    rest = "\n".join([*_failures(report), *figure_lines(report.figures)])
    room = OUTPUT - len(needed)
    if len(rest) > room:
        rest = f"{rest[: max(0, room - 40)]}\n[more in {RESULTS}]"
    return rest + needed[-OUTPUT:]


def _table(goals: Sequence[Goal]) -> list[str]:
    name = max((len(goal.name) for goal in goals), default=0)
    figure = min(40, max((len(goal.figure) for goal in goals), default=0))
    return [
        f"{'ok  ' if goal.met else 'MISS'} {goal.name:<{name}}  {goal.figure[:90]:<{figure}}  "
        f"{goal.limit}"
        for goal in goals
    ]


def _failures(report: Report) -> Iterator[str]:
    for name, step in report.steps.items():
        if "log" in step and step["log"].strip():
            yield f"--- {name}: {step['reason']}\n{step['log'].strip()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
