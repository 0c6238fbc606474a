"""Tries a wheel where nothing else of this project is: installs it, serves from it and measures
that.

On this machine's processor: in a fresh root of Debian without a compiler, which needs root and
debootstrap, and with every Python on PATH that the wheel is for. For arm64: with qemu, whose
emulated processor also runs the tests of the matrix products with NEON. What this machine cannot do
is left out with a message.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.debian import Release, can_make_roots, run_in_root

ROOT = Path(__file__).parents[1]
SERVE = ROOT / "scripts/wheel/serve.py"
# Everything that Python's own modules are linked with, and some of their names differ by release.
LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0",
             "liblzma5", "libzstd1")  # fmt: skip
LIBSSL = {"bookworm": "libssl3", "trixie": "libssl3t64"}
MINORS = range(11, 20)  # of Python 3 on PATH
ARM64 = [f"manylinux_2_{minor}_aarch64" for minor in (17, 24, 26, 27, 28, 31)] + [
    "manylinux2014_aarch64"
]
# What takes minutes, not hours; tests/engine/device/test_instruction_sets.py runs all ops, as
# another compiler builds them. The wheels of a machine share their kernels: one of them is enough.
TESTS = ("-k", "neon", "tests/engine/device/test_linear.py", "tests/engine/device/test_embed.py")
TESTED_PYTHON = "3.11"
TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-asyncio", "hypothesis", "safetensors")


def try_wheel(wheel: Path, debian: Release, python: str) -> None:
    """`python`: the version that `debian` has."""
    if f"_{os.uname().machine}." in wheel.name:
        try_in_root(wheel, debian)
        try_installed(wheel)
    elif debian.arch == "arm64":
        try_emulated(wheel, debian, python)


def try_in_root(wheel: Path, debian: Release) -> None:
    if not can_make_roots():
        print(f"{wheel.name}: not tried; that needs root, and Debian's package debootstrap")
        return
    root = debian.make_root(("ca-certificates", "python3", "python3-venv"))
    for file in (wheel, SERVE):
        shutil.copy(file, root / "tmp")
    print(f"{wheel.name}, Debian {debian.name}:", flush=True)
    run_in_root(root, "python3", f"/tmp/{SERVE.name}", f"/tmp/{wheel.name}")


def try_installed(wheel: Path) -> None:
    # Not the packages of a checkout instead of the wheel's.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for minor in MINORS:
        python = shutil.which(f"python3.{minor}")
        if python and fits(wheel.name, minor) and works(python):
            print(f"{wheel.name}, {python}:", flush=True)
            subprocess.run([python, str(SERVE), str(wheel)], check=True, env=environment)


def fits(wheel: str, minor: int) -> bool:
    """Whether Python 3.`minor` installs this wheel."""
    found = re.search(r"-cp3(\d+)-(\w+)-", wheel)
    assert found, wheel
    first = int(found[1])
    return minor == first or (found[2] == "abi3" and minor > first)


def works(python: str) -> bool:
    """False for a program that only stands for a Python which is not installed."""
    return subprocess.run([python, "-c", "import venv"], stderr=subprocess.DEVNULL).returncode == 0


def try_emulated(wheel: Path, debian: Release, python: str) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not qemu:
        print(f"{wheel.name}: not tried; that needs Debian's package qemu-user")
        return
    place = debian.folder / f"emulated-{debian.name}"
    root = place / "root"
    place.mkdir(exist_ok=True)
    own = (f"python{python}-minimal", f"libpython{python}-minimal", f"libpython{python}-stdlib")
    debian.unpack((*LIBRARIES, LIBSSL[debian.name], *own), root)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    packages = place / "packages"
    install(packages, python, str(wheel), *TEST_PACKAGES)
    emulated = [qemu, "-cpu", "max", "-L", str(root), str(root / f"usr/bin/python{python}")]
    environment = os.environ | {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    print(f"{wheel.name}, arm64 emulated by qemu:", flush=True)
    serve = [sys.executable, str(SERVE), "--", *emulated, "-m", "server", "serve"]
    subprocess.run(serve, check=True, env=environment, cwd=place)
    if python == TESTED_PYTHON:
        run_tests_emulated(emulated, place, environment)


def run_tests_emulated(emulated: list[str], place: Path, environment: dict[str, str]) -> None:
    tests = place / "checkout"
    shutil.rmtree(tests, ignore_errors=True)
    shutil.copytree(ROOT / "tests", tests / "tests", ignore=shutil.ignore_patterns(".venv", "node"))
    shutil.copy(ROOT / "pyproject.toml", tests)
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "timeout=1800"]
    subprocess.run(
        [*emulated, "-m", "pytest", *options, *TESTS], check=True, env=environment, cwd=tests
    )


def install(folder: Path, python: str, *requirements: str) -> None:
    """Unpacks packages for arm64 and a version of Python, which need not run here."""
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={name}" for name in ARM64]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    where = ["--target", str(folder), "--only-binary=:all:", f"--python-version={python}"]
    subprocess.run([*pip, *where, *platforms, *requirements], check=True)
