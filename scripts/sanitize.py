"""Native code under sanitizers: the C++ drivers, the tests that run kernels, damaged model files.

Builds the package into a separate environment under build/sanitize, with AddressSanitizer and
UndefinedBehaviorSanitizer. A report ends the process that it is about. Prints a line per goal with
its figure, and exits with 1 when one is missed.

    python scripts/sanitize.py [--inputs N] [--files gguf]

Python keeps what it allocates until the process ends, and the loader's arenas hide pointers from
the leak detector, so only the drivers, which contain no Python, are checked for leaks.
"""

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the tests are not an installed package

from tests.native.loader_fuzz import TARGETS  # noqa: E402
from tests.soak.goals import Goal  # noqa: E402

PLACE = ROOT / "build" / "sanitize"
TREE = PLACE / "tree"
REPORTS = PLACE / "reports"
PYTHON = PLACE / "venv" / "bin" / "python"

# The last one as in CMakeLists.txt, which says why.
ADDRESS = (
    "-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all "
    "--param=asan-instrumentation-with-call-threshold=100"
)
# What the tests need from the checkout, except `engine` and `server`, which must be the installed
# ones.
BESIDE = ("tests", "csrc", "docs", "bench", "scripts", "CMakeLists.txt", "pyproject.toml")
# Tests that run kernels, load weights or serve a model.
NATIVE_TESTS = (
    "attention", "begun_passes", "branch_attention", "cache", "cancel", "common_keys",
    "default_model", "draft", "draft_model", "embed", "engine_load", "experts", "families",
    "family_ops", "generator", "gguf_linear", "gguf_panels", "gpt_oss_attention", "layout",
    "linear", "loading", "mapped_panels", "mixed", "model_parity", "cpu_ops", "native_build",
    "native_loading", "ngram_index", "ops", "panel_cache", "prefix", "prefix_files", "prefix_model",
    "program", "random_numbers", "read_boundaries", "recurrent_ops", "round_attention",
    "sample_adjust", "sample_native", "sample_op", "sample_score", "sample_stages",
    "sampler_vocabulary", "sampling", "sections", "speculation", "stored_rows", "super_blocks",
    "threads", "token_healing", "weave", "weights", "wire_parity",
)  # fmt: skip
# Grammars are compiled in a process with a memory limit; a sanitizer reserves terabytes.
NOT_LIMITED = "not constrain"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="damaged model files to load")
    parser.add_argument(
        "--files", default="", choices=TARGETS, help="only of this kind (default: a mixture)"
    )
    arguments = parser.parse_args()
    build()
    all_met = True
    for goal in goals(arguments.inputs, arguments.files):
        verdict = "ok  " if goal.met else "MISS"
        print(f"{verdict} {goal.name}: {goal.figure} (goal: {goal.limit})", flush=True)
        all_met &= goal.met
    return 0 if all_met else 1


def build() -> None:
    """Makes an environment with this one's packages and the sanitized build of the project."""
    for directory in (TREE, REPORTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    for name in BESIDE:
        (TREE / name).symlink_to(ROOT / name)
    if not PYTHON.exists():
        venv.create(PLACE / "venv", with_pip=False)
    purelib = subprocess.check_output(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # Only this directory as a path, so that this environment's editable installs are not included.
    Path(purelib, "shared.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run(
        [
            sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "--no-deps",
            "--force-reinstall", "--disable-pip-version-check",
            "--config-settings=cmake.define.SOLITON_SANITIZE=ON",
            "--config-settings=cmake.build-type=RelWithDebInfo",
            f"--config-settings=build-dir={PLACE / 'native'}", ROOT,
        ],
        check=True,
    )  # fmt: skip


def goals(n_inputs: int, kind: str) -> Iterator[Goal]:
    """Runs the checks one after the other."""
    without_python = {
        "TSAN_OPTIONS": f"log_path={REPORTS}/thread:halt_on_error=1:die_after_fork=0",
        "ASAN_OPTIONS": f"log_path={REPORTS}/address",
        "UBSAN_OPTIONS": f"log_path={REPORTS}/undefined:print_stacktrace=1",
    }
    yield passed(
        "thread pool and tape under ThreadSanitizer", ["test_pool.py"],
        {**without_python, "CXXFLAGS": "-fsanitize=thread -g1"},
    )  # fmt: skip
    yield passed(
        "thread pool and tape under AddressSanitizer and UndefinedBehaviorSanitizer, no leak",
        ["test_pool.py"], {**without_python, "CXXFLAGS": f"{ADDRESS} -g1"},
    )  # fmt: skip
    yield passed(
        "kernels without Python under both, no leak", ["test_instruction_sets.py", "-k", "plain"],
        {**without_python, "CXXFLAGS": f"{ADDRESS} -g1"},
    )  # fmt: skip
    with_python = {
        **without_python,
        # With the C++ library: ASan intercepts its exceptions, and Python is not linked to it.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so')}",
        "ASAN_OPTIONS": f"{without_python['ASAN_OPTIONS']}:detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # so that ASan checks the bounds of Python's own objects
        "SOLITON_REQUIRE_NATIVE": "1",
    }
    yield fuzzed(n_inputs, kind, with_python)
    files = [f"test_{name}.py" for name in NATIVE_TESTS]
    yield passed("native tests under both", [*files, "-k", NOT_LIMITED], with_python, within=TREE)


def fuzzed(n_inputs: int, kind: str, environment: dict[str, str]) -> Goal:
    """Loads damaged model files of a kind, or of all, in one process per CPU."""
    n_processes = os.cpu_count() or 1
    share = math.ceil(n_inputs / n_processes)
    command = [str(PYTHON), "tests/native/loader_fuzz.py", "--inputs", str(share)]
    command += ["--only", kind] if kind else []
    # A panic of the tokenizer library is a valid outcome, and its backtrace takes most of the time.
    variables = {**os.environ, **environment, "RUST_BACKTRACE": "0"}
    runs = [
        subprocess.Popen(
            [*command, "--seed", str(seed)],
            cwd=TREE,
            env=variables,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
        )
        for seed in range(1, n_processes + 1)
    ]
    n_failed = 0
    for run in runs:
        said = run.communicate()[0]
        n_failed += run.returncode != 0
        print(said[-5000:] if run.returncode else said[-800:])
    figure = f"{share * n_processes:,} inputs, seeds 1 to {n_processes}, {n_failed} found"
    return Goal(
        f"loading damaged {kind or 'model'} files under both", figure, "0 found", not n_failed
    )


def passed(
    name: str, which: list[str], environment: dict[str, str], *, within: Path = ROOT
) -> Goal:
    """Whether these tests pass without a sanitizer's report."""
    paths = [found(word) if word.endswith(".py") else word for word in which]
    python = PYTHON if within == TREE else sys.executable
    command = [python, "-m", "pytest", "-q", "--capture=sys", "--timeout=1200", *paths]
    run = subprocess.run(
        command, cwd=within, env={**os.environ, **environment}, capture_output=True, text=True
    )
    reports = [path.read_text(errors="replace") for path in REPORTS.iterdir()]
    # With other sanitizers, UndefinedBehaviorSanitizer ignores log_path and writes to stderr.
    reports += re.findall(r".*runtime error:[\s\S]{,2000}", run.stderr)
    summary = re.sub(r" in [0-9.]+s.*", "", run.stdout.strip().rsplit("\n", 1)[-1])
    met = run.returncode == 0 and not reports
    if not met:
        print(f"exit code {run.returncode}", run.stdout[-5000:], *reports, file=sys.stderr)
    for path in REPORTS.iterdir():
        path.unlink()
    return Goal(name, f"{summary}, {len(reports)} reports", "0 reports", met)


def found(test: str) -> str:
    """The path of a test file, whose name is unique."""
    tests = (ROOT / "tests").rglob(test)
    (path,) = (path for path in tests if ".venv" not in path.parts)  # that of tests/clients
    return str(path.relative_to(ROOT))


def library(name: str) -> str:
    """The path of one of the compiler's own libraries."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    return subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
