"""The commands of scripts/gpu_check.py: which steps each has, in which order, and their goals.

Owns the plan. bench/gpu owns the measurements, gpu_steps.py how steps run.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from scripts.gpu_carry import CARRY, CORPORA, DRIVER, ROOT, SITE
from scripts.gpu_steps import Run, Step
from tests.soak.goals import Goal

WORK = ROOT / "build" / "gpu"
JUNIT = WORK / "tests.xml"
BUILD = "build"

# The steps of a stage run at once, the stages one after the other.
Stage = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan depends on. Each `no_*` says why something is missing, or is empty."""

    gpu: str
    capability: str = ""  # such as 9.0
    no_binaries: str = ""
    no_gpu: str = ""
    no_nvcc: str = ""
    no_sanitizer: str = ""
    no_ncu: str = ""
    is_rehearsal: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command of gpu_check.py."""

    stages: Callable[[Machine, Path], list[Stage]]
    time_s: float  # limit for all steps together
    judges: tuple[str, ...] = ()  # goals of bench/gpu/goals.py


def first(machine: Machine, out: Path) -> list[Stage]:
    """Does it compute, how fast, do its tests pass, and where does the time go?"""
    profiled = machine.no_gpu or machine.no_ncu
    few = ["short"] if machine.is_rehearsal else []
    return [
        *build(machine),
        [Step("driver", [CARRY / DRIVER, *few], 60, partial(passed, "every kernel runs"),
              after=BUILD, missing=machine.no_gpu)],
        [bench("smoke", 100, machine, goals=partial(passed, "right at real sizes"))],
        [bench("decode", 110, machine)],
        [Step("tests", pytest_command(), 120, goals_of_tests, after=BUILD, missing=machine.no_gpu)],
        [bench("boundaries", 60, machine)],
        [Step("ncu", ncu_command(machine, out), 80, after=BUILD, missing=profiled)],
    ]  # fmt: skip


def second(machine: Machine, out: Path) -> list[Stage]:
    """The sanitizers, each with the card to itself; then rows, depth, prompts, sampler, loading."""
    return [
        *build(machine),
        [sanitizer("memcheck", machine)],
        [sanitizer("racecheck", machine)],
        [sanitizer("synccheck", machine)],
        [bench("rest", 200, machine)],
    ]


def families(machine: Machine, out: Path) -> list[Stage]:
    """Experts, windows, sinks and caps: their tests, then their figures beside torch's."""
    files = ("attention", "experts", "family_ops", "families")
    tests = pytest_command([f"tests/engine/device/test_cuda_{name}.py" for name in files])
    return [
        *build(machine),
        [Step("tests", tests, 150, goals_of_tests, after=BUILD, missing=machine.no_gpu)],
        [bench("families", 240, machine, cases=("gpt-oss",) if machine.is_rehearsal else ())],
    ]


def turn_knobs(machine: Machine, out: Path) -> list[Stage]:
    return [*build(machine), [bench("knobs", 300, machine)]]


def rivals(machine: Machine, out: Path) -> list[Stage]:
    """Soliton, then on the same card the rivals: they compile at once, for minutes, and are
    measured one after the other.
    """
    no_exllamav2 = "" if (CARRY / SITE / "exllamav2").exists() else "not carried"
    return [
        *build(machine),
        [bench("decode", 120, machine, cases=("8B-bfloat16", "8B-4bit", "1B-bfloat16", "8B-8bit"))],
        [
            rival("compiled", "8B-bfloat16", machine),
            rival("compiled", "1B-bfloat16", machine),
            rival("compiled", "8B-4bit", machine),
            rival("compiled", "8B-8bit", machine),
            rival("transformers", "8B-bfloat16", machine),
            rival("transformers", "1B-bfloat16", machine),
            rival("exllamav2", "8B-4bit", machine, missing=no_exllamav2),
        ],
    ]


def train(machine: Machine, out: Path) -> list[Stage]:
    """The default model and its draft; what needs no GPU is left for another machine. A second call
    on the same machine continues where this one was stopped.
    """
    missing = machine.no_gpu or ("" if (CARRY / CORPORA).is_dir() else "not carried")
    run_dir = WORK / "training"
    few = ["--tokens", "20k", "--draft-tokens", "20k"] if machine.is_rehearsal else []
    command: list[str | Path] = [
        sys.executable, "-m", "training", "--device", "cpu" if machine.is_rehearsal else "cuda",
        "--corpora", CARRY / CORPORA, "--run-dir", run_dir, *few, "--only",
    ]  # fmt: skip
    pack: list[str | Path] = [sys.executable, "scripts/gpu_trained.py", run_dir, out]
    return [
        [Step("target", [*command, "target"], 420, partial(passed, "target trained"),
              missing=missing)],
        [Step("draft", [*command, "draft"], 300, partial(passed, "draft trained"), after="target",
              missing=missing)],
        [Step("pack", pack, 60, missing=missing)],
    ]  # fmt: skip


COMMANDS = {
    "first": Command(first, 470, ("decode",)),
    "second": Command(second, 470, ("rest",)),
    "families": Command(families, 420, ("families",)),
    "knobs": Command(turn_knobs, 320),
    "rivals": Command(rivals, 540, ("rivals",)),
    "train": Command(train, 570),
}


def build(machine: Machine) -> list[Stage]:
    """Nothing, if the carried binaries can be used."""
    if not machine.no_binaries:
        return []
    architecture = {"9.0": "90a"}.get(machine.capability, machine.capability.replace(".", ""))
    target = ["--emulated"] if machine.is_rehearsal else ["--architectures", architecture]
    command = [sys.executable, "scripts/gpu_carry.py", *target]
    script = (
        f"{' '.join(command)} && {sys.executable} -c "
        '"import sys; from scripts.gpu_carry import install; sys.exit(install() or None)"'
    )
    missing = machine.no_gpu or machine.no_nvcc
    return [[Step(BUILD, ["sh", "-c", script], 240, partial(passed, "native modules built"),
                  missing=missing)]]  # fmt: skip


def bench(
    what: str,
    limit_s: float,
    machine: Machine,
    *,
    cases: Sequence[str] = (),
    goals: Callable[[Run], list[Goal]] = lambda run: [],
    missing: str = "",
) -> Step:
    figures = WORK / f"{what}.json"
    if machine.is_rehearsal and what not in ("smoke", "families"):
        cases = ("8B-4bit",)  # all are equally tiny
    return Step(
        name=what,
        command=[sys.executable, "-m", "bench.gpu", what, *cases, "--figures", figures],
        limit_s=limit_s,
        goals=goals,
        after=BUILD,
        missing=machine.no_gpu or missing,
        is_shown=True,
        figures=figures,
    )


def rival(name: str, case: str, machine: Machine, *, missing: str = "") -> Step:
    full_name = f"{name}-{case}"
    figures, gate = WORK / f"{full_name}.json", WORK / full_name
    return Step(
        name=full_name,
        command=[
            sys.executable, "-m", "bench.gpu", name, case, "--figures", figures, "--gate", gate,
        ],
        limit_s=360,
        missing=machine.no_gpu or missing,
        is_shown=True,
        gate=gate,
        figures=figures,
    )  # fmt: skip


def sanitizer(tool: str, machine: Machine) -> Step:
    return Step(
        name=tool,
        command=[
            "compute-sanitizer", "--tool", tool, "--error-exitcode", "9", CARRY / DRIVER, "short",
        ],
        limit_s=80,
        goals=partial(sanitizer_goals, tool),
        after=BUILD,
        missing=machine.no_gpu or machine.no_sanitizer,
    )  # fmt: skip


def ncu_command(machine: Machine, out: Path) -> list[str | Path]:
    """Every kernel of a pass, with all of ncu's sections: as text, and as a file for its window. A
    rehearsal runs the pass alone.
    """
    profiled: list[str | Path] = [sys.executable, "-m", "bench.gpu", "one-pass"]
    if machine.is_rehearsal:
        return profiled
    return [
        "ncu", "--clock-control", "none", "--set", "full", "--profile-from-start", "off",
        "--import-source", "no", "--export", out / "ncu", "--force-overwrite", "--page", "details",
        *profiled,
    ]  # fmt: skip


def pytest_command(names: Sequence[str] = ()) -> list[str | Path]:
    """Runs the tests marked `cuda`, of these files or of all. Without the options of
    pyproject.toml, because the plugins they need may not be installed.
    """
    all_files = sorted(ROOT.glob("tests/engine/device/test_cuda_*.py"))
    files = [ROOT / name for name in names] or all_files
    n_workers = str(min(6, os.cpu_count() or 1))
    several = ["-n", n_workers, "--dist", "loadfile"] if find_spec("xdist") else []
    return [
        sys.executable, "-m", "pytest", "-q", "-ra", "-m", "cuda", "-o", "addopts=",
        "-o", "filterwarnings=default", f"--junitxml={JUNIT}", *several, *files,
    ]  # fmt: skip


def passed(name: str, run: Run) -> list[Goal]:
    return [Goal(name, run.reason or f"in {run.seconds:.0f} s", "exit code 0", not run.reason)]


def goals_of_tests(run: Run) -> list[Goal]:
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
    """Met if the tool finished and found no errors; racecheck's warnings are told beside them."""
    errors = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: .*?\((\d+) error", run.log)
    n_warnings = sum(map(int, re.findall(r"(\d+) warning", run.log)))
    n_errors = sum(int(number) for found in errors for number in found if number)
    figure = run.reason or "no summary"
    if errors:
        figure = f"{n_errors} errors, {n_warnings} warnings"
    # The exit code counts warnings as well.
    ended = not run.reason or run.reason == "exit code 9"
    return [
        Goal(f"{tool} of every kernel", figure, "0 errors", bool(errors) and ended and not n_errors)
    ]
