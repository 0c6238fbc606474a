"""What an installation needs and says: dependencies, scripts of `make`, errors without torch."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.repository.test_imports import FILES, ROOT, roots

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = """
import sys
sys.modules |= dict.fromkeys({absent!r})  # importing one of them raises ImportError
from server.__main__ import main
sys.exit(main({arguments!r}))
"""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in requirements}


def run(*command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_what_is_required_is_what_the_packages_import() -> None:
    imported = set().union(*(roots(file) for file in FILES)) - set(sys.stdlib_module_names)
    with_pydantic = {"pydantic_core", "typing_extensions"}
    of_extras = {"torch", "ray", "opentelemetry"}
    assert names(PROJECT["dependencies"]) == imported - {"engine", *of_extras, *with_pydantic}
    assert "ray" in names(PROJECT["optional-dependencies"]["ray"])


def test_torch_comes_with_the_extras_that_compute_with_it() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {extra for extra in extras if "torch" in names(extras[extra])} == {
        "cuda",
        "test",
        "training",
    }
    lines = {line for extra in extras.values() for line in extra if line.startswith("torch")}
    assert len(lines) == 1, "one range everywhere"


@pytest.mark.parametrize(
    ("device", "absent", "said"),
    [
        ("cuda", ["torch"], "device: cuda needs torch"),
        ("cpu", ["torch", "engine.native._cpu"], "the native module cannot be imported"),
    ],
)
def test_without_torch_one_line_says_what_to_install(
    device: str, absent: list[str], said: str
) -> None:
    arguments = ["serve", "--port", "0", "--device", device]
    done = run(sys.executable, "-c", WITHOUT.format(absent=absent, arguments=arguments))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line
    assert 'pip install "soliton[cuda]"' in line


@pytest.mark.parametrize(
    ("interpreter", "said"),
    [
        ("", "no Python >= 3.11 found"),
        ("/nonexistent/python", "PYTHON=/nonexistent/python: no such program"),
        ("/bin/false", "PYTHON=/bin/false: is not a working Python interpreter"),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_one_line(interpreter: str, said: str) -> None:
    done = run("scripts/packages.sh", interpreter)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line


def test_an_old_interpreter_is_one_line(tmp_path: Path) -> None:
    old = program(tmp_path, "python3.10", 'case "$2" in *print*) echo 3.10 ;; *) exit 1 ;; esac')
    done = run("scripts/packages.sh", old)
    assert done.returncode == 2
    assert done.stderr == f"soliton: PYTHON={old}: is Python 3.10; 3.11 or later is needed\n"


def test_missing_packages_are_a_command_to_paste(tmp_path: Path) -> None:
    bare = 'case "$2" in *print*) echo 3.12 ;; *Python.h*|*venv*) exit 1 ;; esac'
    python = program(tmp_path, "python3.12", bare)
    for name in ("apt-get", "c++"):
        program(tmp_path, name, "exit 1")
    program(tmp_path, "id", "echo 1000")
    done = run("scripts/packages.sh", python, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2
    assert done.stderr.endswith(": sudo apt install python3.12-venv python3.12-dev\n")


@pytest.mark.parametrize(("extra", "needed"), [([], 250), (["cuda"], 5500)])
def test_the_size_is_said_and_the_disk_checked_first(
    tmp_path: Path, extra: list[str], needed: int
) -> None:
    program(tmp_path, "df", "echo Filesystem; echo disk 100 40 60 40% /")
    script = ROOT / "scripts/install.sh"
    done = subprocess.run(
        [script, sys.executable, *extra],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"{needed} MB on disk" in done.stdout
    assert f"60 MB are free, {needed} MB are needed" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(("cuda", "installs"), [("1", True), ("0", False)])
def test_make_installs_torch_only_for_a_gpu(cuda: str, installs: bool) -> None:
    commands = run("make", "--dry-run", "--always-make", "build", f"CUDA={cuda}").stdout
    installing = [line for line in commands.splitlines() if "scripts/install.sh" in line]
    assert [line.rstrip().endswith(" cuda") for line in installing] == [installs]
