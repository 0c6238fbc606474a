"""scripts/gpu_check.py without a GPU: its plan, its processes, its goals, its files; and a
rehearsal on the emulator, without the packages that a GPU machine lacks.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bench.gpu import families
from bench.gpu.boundaries import Share, Stamp, shares
from bench.gpu.figures import Figures
from bench.gpu.goals import GOALS
from bench.gpu.place import tiny
from bench.gpu.shapes import CONFIGS
from bench.gpu.weights import random_weights, step_bytes
from engine.device.cuda.ops import CudaOps
from engine.native import cpu as native
from scripts import gpu_carry, gpu_check, gpu_plan, gpu_trained
from scripts.gpu_check import main, run_stages
from scripts.gpu_plan import COMMANDS, Machine, goals_of_tests, sanitizer_goals
from scripts.gpu_rehearse import copy_checkout, rehearse
from scripts.gpu_report import RESULTS, SUMMARY, Report
from scripts.gpu_steps import Run, Step, run_stage
from tests.soak.goals import Goal
from tests.support.cuda_module import build, emulated
from training.checkpoint import load_checkpoint

__all__ = ["emulated"]

ROOT = Path(__file__).parents[2]
HOPPER = Machine("NVIDIA H100 80GB HBM3", "9.0")
NO_GPU = Machine("", no_gpu="no NVIDIA GPU: nvidia-smi: not found")

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
    return Step(name=name, command=python(code), limit_s=20, **options)


class Runs(dict[str, Run]):
    """The results by step; and the lines of the shown ones, each with the time it was heard."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float]] = []

    def line(self, step: Step, line: str) -> None:
        self.lines.append((line, time.monotonic()))

    def end(self, step: Step, run: Run) -> None:
        self[step.name] = run


def run_steps(steps: list[Step], tmp_path: Path, *, time_s: float = 20) -> Runs:
    runs = Runs()
    run_stage(steps, tmp_path, ROOT, time_s=time_s, watcher=runs)
    return runs


def goals(figures: dict[str, Any]) -> list[Goal]:
    return [goal for judge in GOALS.values() for goal in judge(figures)]


def whole_figures() -> dict[str, Any]:
    case = {
        "stream_ms": 4.0,
        "stream_share": 0.9,
        "deep_share": 0.7,
        "prefill_2048_share": 0.6,
        "host_us": 12.0,
        "drafts_added_us": 4.0,
        "sampled_added_us": 14.0,
        "rows_ms": {"1": 4.0, "2": 4.1, "4": 4.2, "8": 4.8, "16": 6.0},
        "profile": [{"name": "linear", "count": 32, "us": 100.0, "gbs": 4000.0}],
    }
    cases = ("8B-bfloat16", "8B-4bit", "8B-8bit", "1B-bfloat16")
    family = {"decode_ms": 1.0, "torch_decode_ms": 4.0, "from_torch": 0.02}
    return {
        "limits": {"read_bytes": 4.5e12},
        **{name: dict(case) for name in cases},
        "load": {"gbs": 5.0},
        **{f"families {name}": dict(family) for name in families.CASES},
        "rivals": {f"compiled {name}": 6.0 for name in cases},
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_gpu_every_step_is_skipped_and_says_why(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "look_around", lambda: NO_GPU)
    assert main([name, "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told == (tmp_path / SUMMARY).read_text()
    assert f"skipped: {NO_GPU.no_gpu}" in told
    result = json.loads((tmp_path / RESULTS).read_text())
    assert result["machine"]["gpu"] == NO_GPU.no_gpu
    steps = {each.name for stage in COMMANDS[name].stages(NO_GPU, tmp_path) for each in stage}
    assert result["steps"].keys() == steps
    assert all(each["reason"].startswith("skipped: no NVIDIA") for each in result["steps"].values())
    assert not any(goal["met"] for goal in result["goals"])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_fits_into_ten_minutes_and_begins_with_a_build_only_if_it_must(
    name: str, tmp_path: Path
) -> None:
    command = COMMANDS[name]
    assert command.time_s <= 590
    stages = command.stages(HOPPER, tmp_path)
    assert all(each.limit_s <= command.time_s for stage in stages for each in stage)
    assert not any(each.name == "build" for stage in stages for each in stage)
    if name == "train":  # plain torch
        return
    bare = Machine(HOPPER.gpu, "9.0", no_binaries="not here")
    (fallback, *_), *_ = command.stages(bare, tmp_path)
    assert fallback.name == "build"
    assert "--architectures 90a" in str(fallback.command[-1]), "Hopper's own instructions"


def test_the_first_command_gives_its_verdict_first(tmp_path: Path) -> None:
    stages = COMMANDS["first"].stages(HOPPER, tmp_path)
    names = [each.name for stage in stages for each in stage]
    assert names == ["driver", "smoke", "decode", "tests", "boundaries", "ncu"]


def test_an_unknown_step_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "look_around", lambda: NO_GPU)
    with pytest.raises(SystemExit):
        main(["first", "--only", "polish"])
    assert "no step polish; steps: boundaries, decode" in capsys.readouterr().err


def test_a_failure_hides_nothing_but_what_needs_it(tmp_path: Path) -> None:
    stages = [
        [step("build", "raise SystemExit('no compiler')"), step("rival", "print('ready')")],
        [step("tests", "print('tested')", after="build"), step("other", "print('done')")],
    ]
    report = Report(tmp_path, {})
    run_stages(stages, report, deadline=time.monotonic() + 20)
    reasons = {name: each["reason"] for name, each in report.steps.items()}
    assert reasons == {
        "build": "exit code 1", "rival": "", "tests": "skipped: build: exit code 1", "other": "",
    }  # fmt: skip
    assert "no compiler" in (tmp_path / SUMMARY).read_text()
    assert json.loads((tmp_path / RESULTS).read_text())["steps"] == report.steps
    assert "ready" in (tmp_path / "log.txt").read_text()


def test_the_lines_of_a_shown_step_are_told_while_it_runs(tmp_path: Path) -> None:
    code = "import time; print('one'); time.sleep(1); print('two')"
    runs = run_steps([step("smoke", code, is_shown=True), step("other", "print(1)")], tmp_path)
    (one, first), (two, second) = runs.lines
    assert (one, two) == ("one", "two")
    assert second - first > 0.5


def test_a_step_ends_with_its_time_and_with_all_that_it_started(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = f"import time; time.sleep(2); open({str(alive)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    slow = Step(name="slow", command=python(code), limit_s=0.5)
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
    taken = Step(name="bench", command=python(code, file=str(file)), limit_s=20, figures=file)
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


def test_all_goals_are_met_by_figures_that_meet_them() -> None:
    judged = goals(whole_figures())
    assert all(goal.met for goal in judged)
    assert "1.50 x compiled" in {goal.figure for goal in judged}


@pytest.mark.parametrize(
    ("group", "figures", "name"),
    [
        ("8B-bfloat16", {"stream_share": 0.79}, "8B bfloat16 decode, of read bandwidth"),
        ("8B-bfloat16", {"host_us": 31.0}, "8B bfloat16: host time per token beyond the graph"),
        ("8B-bfloat16", {"rows_ms": {"1": 4.0, "8": 5.1}}, "8B bfloat16: 8 rows, to one"),
        ("8B-4bit", {"deep_share": 0.5}, "8B 4bit at 32k, 8-bit KV, of bandwidth"),
        (
            "1B-bfloat16",
            {"drafts_added_us": 90.0},
            "1B bfloat16: added by n-gram drafts that never come",
        ),
        ("load", {"gbs": 1.9}, "loading safetensors"),
        ("families gpt-oss", {"torch_decode_ms": 1.4}, "gpt-oss decode, to torch"),
        ("families gemma2", {"from_torch": 0.2}, "gemma2 logits, from torch's"),
        ("rivals", {"exllamav2 8B-4bit": 5.0}, "8B 4bit decode, to the best rival"),
    ],
)
def test_a_figure_below_its_goal_misses_it(group: str, figures: dict[str, Any], name: str) -> None:
    measured = whole_figures()
    measured[group] |= figures
    missed = {goal.name for goal in goals(measured) if not goal.met}
    assert name in missed


def test_what_was_not_measured_is_not_met() -> None:
    judged = goals({})
    assert judged
    assert not any(goal.met for goal in judged)


@pytest.mark.parametrize(
    ("log", "reason", "figure"),
    [
        ("ERROR SUMMARY: 0 errors", "", "0 errors, 0 warnings"),
        ("ERROR SUMMARY: 3 errors", "exit code 9", "3 errors, 0 warnings"),
        ("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", "",
         "0 errors, 0 warnings"),
        ("RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)", "exit code 9",
         "0 errors, 2 warnings"),
        ("RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)", "exit code 9",
         "1 errors, 2 warnings"),
        ("Device not supported", "exit code 1", "exit code 1"),
        ("ERROR SUMMARY: 0 errors", "exit code 1", "0 errors, 0 warnings"),
        ("", "", "no summary"),
    ],
)  # fmt: skip
def test_a_sanitizer_must_have_said_that_it_found_no_error(
    log: str, reason: str, figure: str
) -> None:
    (goal,) = sanitizer_goals("racecheck", Run(reason, f"========= {log}", 1.0, {}))
    assert goal.figure == figure
    assert goal.met == (figure.startswith("0 errors") and reason != "exit code 1")


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
    monkeypatch.setattr(gpu_plan, "JUNIT", junit)
    (goal,) = goals_of_tests(Run("", "", 1.0, {}))
    assert goal.met == met


def test_the_share_of_a_kernel_ends_where_it_ends() -> None:
    """The second begins 2 us before the first has ended; the third 1 us after the second."""
    multiply = "void soliton::(anonymous namespace)::multiply<1>(Params)"
    stamps = [
        Stamp("embed", 0, 4), Stamp(multiply, 2, 9), Stamp("attention", 10, 12),
        Stamp(multiply, 8, 15),
    ]  # fmt: skip
    ops = list(shares(stamps, ["embed", "qkv", "attention", "wo"]))
    assert ops == [
        Share("qkv", 1, 5.0, 2.0), Share("attention", 1, 3.0, -1.0), Share("wo", 1, 3.0, 4.0),
    ]  # fmt: skip
    kernels = list(shares(stamps, ["embed", "qkv", "attention"]))
    assert kernels == [
        Share("soliton::multiply<1>", 2, 4.0, 3.0), Share("attention", 1, 3.0, -1.0),
    ]  # fmt: skip


def test_a_carried_archive_must_be_of_these_sources_and_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gpu-carry"
    folder.mkdir()
    for name, value in (
        ("ROOT", tmp_path), ("CARRY", folder), ("ARCHIVE", tmp_path / "gpu-carry.tar.xz"),
    ):  # fmt: skip
        monkeypatch.setattr(gpu_carry, name, value)
    monkeypatch.setattr(gpu_carry, "sources_hash", lambda: "a")
    assert gpu_carry.install() == "gpu-carry.tar.xz is not here"
    gpu_carry.pack(is_emulated=True)
    shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(gpu_carry, "soabi", lambda: "cpython-399")
        reason = gpu_carry.install()
    assert reason == f"gpu-carry.tar.xz is for {gpu_carry.soabi()}, not cpython-399"
    assert gpu_carry.is_emulated()
    monkeypatch.setattr(gpu_carry, "sources_hash", lambda: "b")
    assert gpu_carry.install() == "gpu-carry.tar.xz was made of other sources"


def test_what_a_training_made_comes_back_in_small_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_trained, "PART_BYTES", 100)
    run, out = tmp_path / "run", tmp_path / "out"
    (run / "target").mkdir(parents=True)
    out.mkdir()
    (run / "target" / "log.csv").write_text("tokens,loss\n")
    state: dict[str, Any] = {"model": {"w": torch.randn(99)}, "tokens": 5, "optimizer": {}}
    torch.save(state, run / "target" / "checkpoint.pt")
    gpu_trained.main([str(run), str(out)])
    parts = sorted(out.iterdir(), key=lambda part: int(part.suffix[1:]))
    assert len(parts) > 1
    assert all(part.stat().st_size <= 100 for part in parts)
    (tmp_path / "all.tar.gz").write_bytes(b"".join(part.read_bytes() for part in parts))
    back = tmp_path / "back"
    shutil.unpack_archive(tmp_path / "all.tar.gz", back, filter="data")
    assert (back / "target" / "log.csv").read_text() == "tokens,loss\n"
    kept = load_checkpoint(back / "target" / "checkpoint.pt")
    assert kept.keys() == {"model", "tokens"}
    assert torch.equal(kept["model"]["w"], state["model"]["w"])


def test_a_model_runs_where_the_packages_of_the_server_are_not() -> None:
    code = (
        "from engine import DEFAULT_MODEL, Engine, SamplingSettings\n"
        "import engine.benchmark, bench.gpu.own, bench.gpu.rivals\n"
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
    command = [*map(str, gpu_plan.pytest_command()), "--collect-only", "-p", "absent_packages"]
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this one, with the emulator's library in its archive."""
    tree = tmp_path_factory.mktemp("checkout")
    copy_checkout(tree)
    (tree / "absent_packages.py").write_text(WITHOUT)
    # An editable installation would be imported instead of the copy.
    (tree / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path = [each for each in sys.meta_path if isinstance(each, type)]\n"
        "import absent_packages\n"
    )
    modules = tree / "build" / "gpu-carry" / "modules"
    modules.mkdir(parents=True)
    for module in (build("_cuda"), native.kernels.__file__):
        shutil.copy2(str(module), modules)
    pack = "from scripts.gpu_carry import pack; pack(is_emulated=True)"
    subprocess.run([sys.executable, "-c", pack], cwd=tree, check=True)
    return tree


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "arguments", [("first", "--only", "smoke", "decode"), ("second", "--only", "rest")]
)
def test_the_commands_run_on_the_emulator(checkout: Path, arguments: Sequence[str]) -> None:
    """With models so small that the figures mean nothing, and without the server's packages. The
    other commands: scripts/gpu_rehearse.py.
    """
    assert rehearse(checkout, arguments, {"PYTHONPATH": str(checkout)})
    result = json.loads((checkout / "out" / RESULTS).read_text())
    summary = (checkout / "out" / SUMMARY).read_text()
    if arguments[0] == "first":
        assert "FAIL" not in summary
        assert "smoke: PASS model of 2 layers, 4bit" in summary
        wanted = {"stream_ms", "stream_share", "graph_ms", "host_us", "drafts_added_us"}
    else:
        wanted = {"rows_ms", "sampled_added_us", "prefill_20_share", "profile", "deep_share"}
        assert len(result["figures"]["8B-4bit"]["profile"]) == 7
    assert result["figures"]["8B-4bit"].keys() >= wanted
    assert "MISS 8B" in summary


@pytest.mark.timeout(600)
def test_a_family_runs_on_the_emulator_and_in_torch(checkout: Path) -> None:
    arguments = ("families", "--only", "families")
    assert rehearse(checkout, arguments, {"PYTHONPATH": str(checkout)})
    figures = json.loads((checkout / "out" / RESULTS).read_text())["figures"]["families gpt-oss"]
    assert figures.keys() >= {"decode_ms", "torch_decode_ms", "prefill_20_tps", "share", "profile"}
    assert "experts 4 of 8" in " ".join(each["name"] for each in figures["profile"])
    assert figures["from_torch"] < 0.05


def test_a_step_is_counted_with_the_bytes_that_its_matrices_have(emulated: ModuleType) -> None:
    config, ops = tiny(CONFIGS["1B"]), CudaOps("cpu", emulated, "4bit")
    weights = random_weights(config, ops, "cpu")
    matrices = [weights.head] + [
        matrix
        for layer in weights.layers
        for matrix in (layer.wqkv, layer.wo, layer.w_gate_up, layer.w_down)
    ]
    assert sum(matrix.n_bytes for matrix in matrices) == step_bytes(config, ops)
