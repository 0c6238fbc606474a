"""scripts/gpu_check.py without a GPU: its plan, its processes, its goals, its table; and what it
runs on a GPU machine works without the server's packages.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.gpu import own
from bench.gpu.figures import Figures
from bench.gpu.goals import benchmark_goals, figure_lines
from bench.gpu.limits import Limits
from bench.gpu.shapes import CONFIGS
from engine.checkpoint.config import AttentionConfig, LayerConfig, MlpConfig, RopeConfig
from engine.device.cuda.ops import CudaOps
from scripts import gpu_check
from scripts.gpu_check import Machine, Report, chosen, main, plan, run_plan, summary
from scripts.gpu_steps import Run, Step, run_stage
from tests.soak.goals import Goal
from tests.support.cuda_module import build, emulated

__all__ = ["emulated"]

ROOT = Path(__file__).parents[2]
HOPPER = Machine("NVIDIA H200", "9.0")
NO_GPU = Machine("", "", no_gpu="no NVIDIA GPU: nvidia-smi: not found")

# In pyproject.toml, but not needed on a machine that has torch and transformers.
ABSENT = (
    "llguidance fastapi starlette uvicorn sse_starlette pydantic pydantic_settings "
    "prometheus_client schemathesis pytest_asyncio openai"
)
WITHOUT = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT!r}.split():
            raise ModuleNotFoundError(f"absent: {{name}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def python(code: str, **values: Any) -> list[str | Path]:
    return [sys.executable, "-c", code.format(**values)]


def step(name: str, code: str, **options: Any) -> Step:
    return Step(name=name, command=python(code), limit_s=20, log=f"{name}.log", **options)


def run_steps(steps: list[Step], tmp_path: Path, *, time_s: float = 20) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    run_stage(
        steps, tmp_path, ROOT, time_s=time_s, on_end=lambda step, run: runs.update({step.name: run})
    )
    return runs


def whole_figures() -> dict[str, Any]:
    case = {
        "stream_ms": 4.0,
        "stream_share": 0.9,
        "deep_share": 0.7,
        "prefill_2048_share": 0.6,
        "host_us": 12.0,
        "rows_ms": {"1": 4.0, "2": 4.1, "4": 4.2, "8": 4.8, "16": 6.0},
        "profile": [{"name": "linear", "count": 32, "us": 100.0, "gbs": 4000.0}],
    }
    cases = ("8B-bfloat16", "8B-4bit", "8B-8bit", "1B-bfloat16")
    return {
        "limits": {"read_bytes": 4.5e12},
        **{name: dict(case) for name in cases},
        "load": {"gbs": 5.0},
        "rivals": {f"compiled {name}": 6.0 for name in cases},
    }


def test_without_a_gpu_every_step_is_skipped_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "look_around", lambda: NO_GPU)
    assert main(["--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "build: skipped: no NVIDIA GPU: nvidia-smi: not found" in told
    assert "MISS 8B bfloat16 decode, of read bandwidth" in told
    result = json.loads((tmp_path / "results.json").read_text())
    assert result["machine"]["gpu"] == NO_GPU.no_gpu
    steps = {each.name for stage in plan(NO_GPU) for each in stage if not each.is_optional}
    assert result["steps"].keys() == steps
    assert all(
        each["reason"].startswith("skipped: no NVIDIA GPU") for each in result["steps"].values()
    )
    assert not any(goal["met"] for goal in result["goals"])


def test_the_plan_fits_into_eight_minutes_and_eight_files() -> None:
    stages = plan(HOPPER)
    assert gpu_check.TIME_S <= 480
    logs = {each.log for stage in stages for each in stage}
    assert len(logs) + 1 <= 8, "results.json comes in addition to the logs"
    assert all(each.limit_s <= gpu_check.TIME_S for stage in stages for each in stage)
    (build,) = (each for stage in stages for each in stage if each.name == "build")
    assert "90a-real" in str(build.command[-1]), "Hopper's own instructions"
    assert "86-real" in gpu_check.build_script("8.6")


def test_named_steps_are_the_only_ones() -> None:
    stages = chosen(plan(HOPPER), ["bench", "build"])
    assert [[each.name for each in stage] for stage in stages] == [["build"], ["bench"]]
    with pytest.raises(SystemExit):
        main(["polish"])


def test_a_failure_hides_nothing_but_what_needs_it(tmp_path: Path) -> None:
    stages = [
        [step("build", "raise SystemExit('no compiler')"), step("rival", "print('ready')")],
        [step("tests", "print('tested')", after="build"), step("other", "print('done')")],
    ]
    report = Report({})
    run_plan(stages, tmp_path, report)
    reasons = {name: each["reason"] for name, each in report.steps.items()}
    assert reasons == {
        "build": "exit code 1", "rival": "", "tests": "skipped: build: exit code 1", "other": "",
    }  # fmt: skip
    assert "no compiler" in report.steps["build"]["log"]
    assert json.loads((tmp_path / "results.json").read_text())["steps"] == report.steps


def test_a_step_ends_with_its_time_and_with_all_that_it_started(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time; time.sleep(2); open({str(alive)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    slow = Step(name="slow", command=python(code), limit_s=0.5, log="slow.log")
    runs = run_steps([slow], tmp_path)
    assert runs["slow"].reason.startswith("not done after ")
    time.sleep(2.5)
    assert not alive.exists(), "its child must have been ended too"


def test_a_step_with_a_gate_runs_alone_after_it(tmp_path: Path) -> None:
    """Two rivals are ready at once; each writes when it was let in, and when it was done."""
    code = (
        "import time; from pathlib import Path; from bench.gpu import gate;"
        "gate.wait(Path({gate!r})); begun = time.monotonic(); time.sleep(0.3);"
        "print(begun, time.monotonic())"
    )
    steps = [
        Step(
            name=name,
            command=python(code, gate=str(tmp_path / name)),
            limit_s=20,
            log=f"{name}.log",
            gate=tmp_path / name,
        )
        for name in ("one", "two")
    ]
    build = step("build", "import time; time.sleep(1); print(time.monotonic())")
    runs = run_steps([build, *steps], tmp_path)
    assert not any(run.reason for run in runs.values())
    built = float(runs["build"].log)
    (first, first_end), (second, _) = sorted(
        [float(word) for word in runs[name].log.split()] for name in ("one", "two")
    )
    assert built < first
    assert first_end < second


def test_a_step_that_never_gets_ready_does_not_hold_up_the_others(tmp_path: Path) -> None:
    stuck = Step(
        name="stuck",
        command=python("import time; time.sleep(60)"),
        limit_s=0.5,
        log="stuck.log",
        gate=tmp_path / "stuck",
    )
    runs = run_steps([stuck, step("other", "print(1)")], tmp_path)
    assert runs["stuck"].reason.startswith("not done")
    assert runs["other"].reason == ""


def test_figures_outlive_the_process_that_took_them(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    code = (
        "import os; from pathlib import Path; from bench.gpu.figures import Figures;"
        "figures = Figures(Path({file!r}));"
        "figures.put('8B-4bit', {{'stream_ms': 1.5}}); os._exit(3)"
    )
    taken = Step(
        name="bench", command=python(code, file=str(file)), limit_s=20, log="b.log", figures=file
    )
    run = run_steps([taken], tmp_path)["bench"]
    assert run.reason == "exit code 3"
    assert run.figures == {"8B-4bit": {"stream_ms": 1.5}}


def test_a_part_that_fails_is_reported_and_hides_no_other(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "figures.json")
    with figures.part("8B-8bit"):
        raise RuntimeError("out of memory")
    with figures.part("1B-bfloat16"):
        figures.put("1B-bfloat16", {"stream_ms": 0.9})
    assert figures.groups["errors"] == {"8B-8bit": "RuntimeError: out of memory"}
    assert any("out of memory" in line for line in figure_lines(figures.groups))


def test_all_goals_are_met_by_figures_that_meet_them() -> None:
    goals = benchmark_goals(whole_figures())
    assert all(goal.met for goal in goals)
    assert "1.50 x compiled" in {goal.figure for goal in goals}


@pytest.mark.parametrize(
    ("group", "figures", "name"),
    [
        ("8B-bfloat16", {"stream_share": 0.79}, "8B bfloat16 decode, of read bandwidth"),
        ("8B-bfloat16", {"host_us": 31.0}, "8B bfloat16: host time per token beyond the graph"),
        ("8B-bfloat16", {"rows_ms": {"1": 4.0, "8": 5.1}}, "8B bfloat16: 8 rows, to one"),
        ("8B-4bit", {"deep_share": 0.5}, "8B 4bit at 32k, 8-bit KV, of bandwidth"),
        ("load", {"gbs": 1.9}, "loading safetensors"),
        ("rivals", {"exllamav2 8B-4bit": 5.0}, "8B 4bit decode, to the best rival"),
    ],
)
def test_a_figure_below_its_goal_misses_it(group: str, figures: dict[str, Any], name: str) -> None:
    measured = whole_figures()
    measured[group] |= figures
    missed = {goal.name for goal in benchmark_goals(measured) if not goal.met}
    assert name in missed


def test_what_was_not_measured_is_not_met() -> None:
    goals = benchmark_goals({})
    assert goals
    assert not any(goal.met for goal in goals)


@pytest.mark.parametrize(
    ("log", "reason", "met"),
    [
        ("========= ERROR SUMMARY: 0 errors", "", True),
        ("========= ERROR SUMMARY: 3 errors", "exit code 9", False),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", "", True),
        ("========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)", "", False),
        ("Device not supported", "exit code 1", False),
        ("", "", False),
    ],
)
def test_a_sanitizer_must_have_said_that_it_found_nothing(log: str, reason: str, met: bool) -> None:
    (goal,) = gpu_check.sanitizer_goals("memcheck", Run(reason, log, 1.0, {}))
    assert goal.met == met


@pytest.mark.parametrize(
    ("counts", "met"),
    [
        ('tests="9" failures="0" errors="0" skipped="2"', True),
        ('tests="9" failures="1" errors="0" skipped="0"', False),
        ('tests="9" failures="0" errors="1" skipped="0"', False),
        ('tests="4" failures="0" errors="0" skipped="4"', False),
    ],
)
def test_tests_count_when_some_passed_and_none_failed(
    counts: str, met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    junit = tmp_path / "tests.xml"
    junit.write_text(f"<testsuites><testsuite {counts}/></testsuites>")
    monkeypatch.setattr(gpu_check, "JUNIT", junit)
    (goal,) = gpu_check.tests_goals(Run("", "", 1.0, {}))
    assert goal.met == met


def test_the_summary_is_short_and_ends_with_the_goals(tmp_path: Path) -> None:
    report = Report({"gpu": "NVIDIA H200"})
    report.steps = {f"step{i}": {"reason": "exit code 1", "log": "x" * 1000} for i in range(14)}
    report.figures = whole_figures()
    report.goals = [*benchmark_goals(report.figures), Goal("last", "0 found", "0 found", True)]
    text = summary(report, tmp_path)
    assert len(text) <= gpu_check.OUTPUT
    assert all(goal.name in text[-4000:] for goal in report.goals)
    assert "20 goals met, 0 missed" in text.splitlines()[-1] or "missed" in text.splitlines()[-1]


def test_a_model_runs_where_the_packages_of_the_server_are_not() -> None:
    code = (
        "from engine import DEFAULT_MODEL, Engine, SamplingSettings\n"
        "import engine.benchmark, bench.gpu.goals\n"
        "engine = Engine.load(DEFAULT_MODEL, device='cpu')\n"
        "ids = engine.tokenizer.encode('Once upon a time')\n"
        "greedy = SamplingSettings(temperature=0.0)\n"
        "engine.generator.begin_stream_ex(ids, greedy, max_new_tokens=4)\n"
        "while not engine.generator.stream_ex().eos: pass\n"
        "print(engine.generator.n_completion_tokens)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.stdout.strip() == "4", run.stderr


def test_the_tests_of_a_gpu_machine_are_found_there(tmp_path: Path) -> None:
    """The exact command, collecting as on that machine: without plugins and packages it lacks."""
    (tmp_path / "absent_packages.py").write_text(WITHOUT)
    command = [*map(str, gpu_check.pytest_command()), "--collect-only", "-p", "absent_packages"]
    run = subprocess.run(
        [*command, "-p", "no:asyncio", "-p", "no:schemathesis"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "test_cuda_" in run.stdout


@pytest.mark.timeout(600)
def test_the_driver_of_the_sanitizers_runs_every_kernel_on_the_emulator() -> None:
    run = subprocess.run(
        [build("cuda_driver"), "short"], capture_output=True, text=True, timeout=500
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "all kernels have run\n"


@pytest.mark.timeout(600)
def test_every_figure_is_taken_on_the_emulator(emulated: ModuleType, tmp_path: Path) -> None:
    """With a model so small that the figures mean nothing."""
    attention = AttentionConfig(n_heads=4, n_kv_heads=2, head_dim=16)
    config = replace(
        CONFIGS["1B"],
        dim=64,
        vocab_size=300,
        ropes=(RopeConfig(theta=1e4, rotary_dim=16),),
        layers=(LayerConfig(attention, MlpConfig(96)),) * 2,
    )
    figures: dict[str, Any] = {}
    weights = own.random_weights(config, CudaOps("cpu", emulated, "4bit"), "cpu")
    amount = own.Amount(tokens=8, prompts=(20,), depth=40, rounds=1, calls=1)
    for measure, kv_cache in ((own.measure, "auto"), (own.measure_deep, "8bit")):
        ops = CudaOps("cpu", emulated, "4bit", kv_cache=kv_cache)
        limits = Limits(1e9, 1e9, 1e9)
        measure(config, ops, limits, weights=weights, amount=amount, put=figures.update)
    assert figures["rows_ms"].keys() == {"1", "2", "4", "8", "16"}
    assert sum(op["count"] for op in figures["profile"]) == 2 + 5 * config.n_layers
    wanted = {*whole_figures()["8B-4bit"], "graph_ms", "prefill_20_share", "sampled_added_us"}
    assert wanted - {"prefill_2048_share"} <= figures.keys()
    moved = figures["gb"] * 1e9 + figures["deep_kv_gb"] * 1e9
    assert figures["deep_share"] == pytest.approx(moved / figures["deep_ms"] * 1e3 / 1e9)
    loaded = own.measure_loading(config, CudaOps("cpu", emulated, "bfloat16"), tmp_path)
    assert loaded["gbs"] > 0
    # The benchmark counts as many bytes for a step as the matrices have.
    matrices = [weights.head] + [
        matrix
        for layer in weights.layers
        for matrix in (layer.wqkv, layer.wo, layer.w_gate_up, layer.w_down)
    ]
    assert sum(matrix.n_bytes for matrix in matrices) == figures["gb"] * 1e9
