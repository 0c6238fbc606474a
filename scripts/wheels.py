"""Builds the wheels and the sdist into dist/, checks them and tries them: `make wheels`.

A wheel holds the packages of a pure one, built from the sdist, and native code that zig compiles
against glibc 2.28, for x86-64 and arm64: one wheel for Python 3.11, and one for the stable ABI of
3.12, which later versions keep. Python's headers come from Debian's packages, so this needs
Debian's apt-get, and a network. scripts/wheel_trials.py tries the wheels.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the scripts are not an installed package

from scripts.debian import Release  # noqa: E402
from scripts.wheel_trials import try_wheel  # noqa: E402

BUILD = ROOT / "build/wheels"
DIST = ROOT / "dist"
TOOLS = BUILD / "tools"
GLIBC = (2, 28)
# The versions that the build was last tried with, or later ones.
PACKAGES = (
    "abi3audit>=0.0.25", "auditwheel>=6.8", "build>=1.6", "cmake>=3.28", "nanobind>=3.1",
    "ninja>=1.13", "scikit-build-core>=1.1", "wheel>=0.45", "ziglang>=0.17",
)  # fmt: skip

# zig has another name for this architecture than gcc and clang, which CMakeLists.txt has to please.
COMPILER = """#!/bin/bash
for option; do
    shift
    [ "$option" = -march=armv8.2-a+dotprod ] && option=-mcpu=generic+v8_2a+dotprod
    set -- "$@" "$option"
done
exec {python} -m ziglang c++ -target {triple} "$@"
"""


@dataclass(frozen=True)
class Target:
    """One wheel: its tags, and the Debian release and Python whose headers it is built with."""

    python: str
    abi: str
    headers: str
    release: str
    machine: str  # x86_64 or aarch64

    @property
    def debian(self) -> Release:
        return Release(self.release, {"x86_64": "amd64", "aarch64": "arm64"}[self.machine], BUILD)

    @property
    def is_stable_abi(self) -> bool:
        return self.abi == "abi3"

    @property
    def tag(self) -> str:
        return f"{self.python}-{self.abi}-manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"


TARGETS = tuple(
    Target(*python, machine)
    for machine in ("x86_64", "aarch64")
    for python in (
        ("cp311", "cp311", "3.11", "bookworm"),
        ("cp312", "abi3", "3.13", "trixie"),
    )
)


def main() -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", TOOLS], check=True)
    tool("pip", "install", "--quiet", *PACKAGES)
    tool("build", "--sdist", "--no-isolation", "--outdir", DIST, source())
    (sdist,) = DIST.glob("*.tar.gz")
    pure = pure_wheel(sdist)
    for target in TARGETS:
        wheel = pack(pure, compile_native(target), target)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {audit(wheel)}", flush=True)
        if target.is_stable_abi:
            tool("abi3audit", "--strict", wheel)
    for target in TARGETS:
        (wheel,) = DIST.glob(f"*-{target.tag}.whl")
        try_wheel(wheel, target.debian, target.headers)


def tool(module: str, *arguments: str | Path) -> str:
    """What a module of the build's environment prints."""
    command = [TOOLS / "bin/python", "-m", module, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def source() -> Path:
    """A copy of what git tracks: looking through .venv and build/ for an sdist takes minutes."""
    folder = BUILD / "source"
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    for name in listed.stdout.split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def pure_wheel(sdist: Path) -> Path:
    """The packages without native code."""
    folder = BUILD / "pure"
    shutil.rmtree(folder, ignore_errors=True)
    no_native = ("--config-settings", "wheel.cmake=false")
    options = ("--no-deps", "--no-build-isolation", *no_native, "--wheel-dir")
    tool("pip", "wheel", "--quiet", *options, folder, sdist)
    (wheel,) = folder.glob("*.whl")
    return wheel


def compile_native(target: Target) -> Path:
    """engine/native/_cpu for one wheel."""
    # Shared by the wheels of a machine: the kernels include no header of Python.
    build = BUILD / target.machine
    compiler = BUILD / f"zig-{target.machine}"
    triple = f"{target.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    compiler.write_text(COMPILER.format(python=TOOLS / "bin/python", triple=triple))
    compiler.chmod(0o755)
    soabi = f"cpython-{target.headers.replace('.', '')}-{target.machine}-linux-gnu"
    defined = {
        "CMAKE_CXX_COMPILER": compiler,
        # nanobind prints to stderr; Python.h declares that only outside of the stable ABI.
        "CMAKE_CXX_FLAGS": "-include stdio.h",
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": target.machine,
        "CMAKE_MODULE_PATH": ROOT / "scripts/wheel",
        "CMAKE_HAVE_LIBC_PTHREAD": "1",  # CMake's own test needs a scanner for modules
        "Python_EXECUTABLE": TOOLS / "bin/python",
        "Python_VERSION": target.headers,
        "Python_INCLUDE": headers(target),
        "Python_SOABI": soabi,
        "Python_SOSABI": "abi3" if target.is_stable_abi else "",
        "SOLITON_CUDA": "OFF",
    }
    define = [f"-D{name}={value}" for name, value in defined.items()]
    environment = os.environ | {"PATH": f"{TOOLS}/bin:{os.environ['PATH']}"}
    for command in (
        ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build), *define],
        ["cmake", "--build", str(build)],
    ):
        subprocess.run(command, check=True, env=environment)
    return build / ("_cpu.abi3.so" if target.is_stable_abi else f"_cpu.{soabi}.so")


def headers(target: Target) -> str:
    """The directories with Python.h and pyconfig.h, as CMake's list; fetched with apt-get."""
    folder = BUILD / f"headers-{target.release}-{target.debian.arch}"
    target.debian.unpack((f"libpython{target.headers}-dev",), folder)
    return f"{folder}/usr/include/python{target.headers};{folder}/usr/include"


def pack(pure: Path, module: Path, target: Target) -> Path:
    """The pure wheel with native code, under the tag of `target`."""
    folder = BUILD / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    tool("wheel", "unpack", "--dest", folder, pure)
    (tree,) = folder.iterdir()
    shutil.copy(module, tree / "engine/native")
    (metadata,) = tree.glob("*.dist-info/WHEEL")
    metadata.write_text(with_tag(metadata.read_text(), target.tag))
    tool("wheel", "pack", "--dest-dir", DIST, tree)
    (wheel,) = DIST.glob(f"*-{target.tag}.whl")
    return wheel


def with_tag(metadata: str, tag: str) -> str:
    """The text of a pure wheel's WHEEL file, changed to that of a wheel with native code."""
    lines = (line for line in metadata.splitlines() if line and not line.startswith("Tag:"))
    kept = (line.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false") for line in lines)
    return "\n".join([*kept, f"Tag: {tag}", ""])


def audit(wheel: Path) -> str:
    """The platform that auditwheel finds; raises if it needs a later glibc than the tag says."""
    platform = found_platform(tool("auditwheel", "show", wheel))
    version = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    if not version or (int(version[1]), int(version[2])) > GLIBC:
        raise SystemExit(f"soliton: {wheel.name}: auditwheel allows only {platform}")
    return platform


def found_platform(report: str) -> str:
    """The platform tag that a report of `auditwheel show` names."""
    text = " ".join(report.split())
    found = re.search(r'consistent with the following platform tag: "(\w+)"', text)
    if not found:
        raise SystemExit(f"soliton: auditwheel names no platform: {text}")
    return found[1]


if __name__ == "__main__":
    main()
