"""The ops on every instruction set; those of arm64 run on an emulated processor.

kernel_driver.cpp computes and this compares. Nothing is timed, since emulation says nothing about
speed.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.kept import kept

# Compilers and an emulator, on a machine with other load.
pytestmark = pytest.mark.timeout(1200)

ROOT = Path(__file__).parents[3]
CMAKE = (ROOT / "CMakeLists.txt").read_text()

ISAS = {
    "SOLITON_X86": ("avx512", "avx2", "baseline"),
    "SOLITON_ARM64": ("neon_dotprod", "neon", "baseline"),
}
HOST = {"x86_64": "SOLITON_X86", "AMD64": "SOLITON_X86"}.get(platform.machine(), "SOLITON_ARM64")


class Driver(NamedTuple):
    """A built kernel_driver and what runs it: nothing, or an emulator."""

    path: Path
    runner: tuple[str, ...] = ()

    def run(self, *arguments: str) -> list[str]:
        command = [*self.runner, str(self.path), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()

    def results(self, isa: str) -> list[str]:
        """What it computes with an instruction set, by an earlier run if nothing has changed."""

        def write(place: Path) -> None:
            (place / "results").write_text("\n".join(self.run(isa)))

        runner = [version(self.runner[0]), *self.runner] if self.runner else []
        place = kept(f"results-{isa}-{self.path.parent.name[:-17]}", [self.path, *runner], write)
        return (place / "results").read_text().splitlines()


def sources(call: str) -> list[str]:
    """The files that a call in CMakeLists.txt names."""
    match = re.search(rf"{re.escape(call)}([^)]*)\)", CMAKE)
    assert match, f"no {call} in CMakeLists.txt"
    return [str(ROOT / name) for name in re.findall(r"csrc/\S+\.cpp", match[1])]


def flags(isa: str) -> list[str]:
    """What CMakeLists.txt compiles the kernels of an instruction set with."""
    of_all = re.search(r"target_compile_options\(kernels_\$\{isa\} PRIVATE([^)]*)\)", CMAKE)
    own = re.search(rf"add_kernels\({isa}\b([^)]*)\)", CMAKE)
    assert of_all, "no options for kernels in CMakeLists.txt"
    assert own, f"no kernels for {isa} in CMakeLists.txt"
    return [*re.findall(r"-\S+", of_all[1]), *own[1].split()]


def version(program: str) -> str:
    command = [program, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def built(
    compiler: str, processor: str, options: Sequence[str], objects: Sequence[Path] = ()
) -> Path:
    """The driver, unless an earlier run built it from the same files: linked from `objects`, or
    from what it compiles.
    """
    made_of: list[Path | str] = [
        *sorted(path for path in (ROOT / "csrc").rglob("*") if path.is_file()),
        ROOT / "CMakeLists.txt",
        *sorted((ROOT / "tests/native").glob("*.*")),
        Path(__file__),
        version(compiler),
        *options,
        f"{len(objects)} objects",
    ]

    def make(directory: Path) -> None:
        if objects:
            link_shipped(compiler, directory, objects)
        else:
            build(compiler, processor, directory, options)

    return kept(f"kernel-driver-{processor}", made_of, make) / "driver"


def rest() -> list[str]:
    """The files of the library without kernels and without Python."""
    files = sources("nanobind_add_module(_cpu")
    return [path for path in files if not Path(path).name.startswith("bind")]


def shipped() -> list[Path]:
    """The objects that the installed library was linked from, or [] if files changed since then."""
    kernels = sources("add_library(kernels_${isa}")
    libraries = {f"kernels_{isa}": kernels for isa in ISAS[HOST]} | {"_cpu": rest()}
    newest = max(
        path.stat().st_mtime
        for path in [*(ROOT / "csrc").rglob("*"), ROOT / "CMakeLists.txt"]
        if path.is_file()
    )
    for place in (ROOT / "build").glob("cp*/CMakeFiles"):
        objects = [
            place / f"{library}.dir" / f"{Path(file).relative_to(ROOT)}.o"
            for library, files in libraries.items()
            for file in files
        ]
        if all(each.exists() and each.stat().st_mtime > newest for each in objects):
            return objects
    return []


def link_shipped(compiler: str, directory: Path, objects: Sequence[Path]) -> None:
    source = ROOT / "tests/native/kernel_driver.cpp"
    command = [compiler, "-std=c++20", "-O1", "-pthread", f"-D{HOST}", str(source)]
    output = ["-o", str(directory / "driver")]
    subprocess.run([*command, *map(str, objects), *output], check=True, timeout=600)


def build(compiler: str, processor: str, directory: Path, options: Sequence[str]) -> None:
    kernels = sources("add_library(kernels_${isa}")
    others = rest()

    def compile_into(name: str, source: str, *arguments: str) -> None:
        place = directory / name
        place.mkdir(exist_ok=True)
        command = [compiler, "-std=c++20", "-c", *arguments, *options, source]
        subprocess.run(command, cwd=place, check=True, timeout=600)

    driver = str(ROOT / "tests/native/kernel_driver.cpp")
    with ThreadPoolExecutor(2) as threads:
        jobs = [
            threads.submit(compile_into, isa, source, *flags(isa), f"-DSOLITON_ISA={isa}")
            for isa in ISAS[processor]
            for source in kernels
        ]
        for source in [*others, driver]:
            jobs.append(threads.submit(compile_into, "rest", source, f"-D{processor}"))
    for job in jobs:
        job.result()
    path = directory / "driver"
    objects = map(str, directory.glob("*/*.o"))
    subprocess.run([compiler, "-pthread", *options, *objects, "-o", path], check=True)
    for place in directory.glob("*/"):
        shutil.rmtree(place)


@pytest.fixture(scope="session")
def host() -> Driver:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    own = os.environ.get("CXXFLAGS", "").split()
    return Driver(built(compiler, HOST, ["-O1", *own], [] if own else shipped()))


@pytest.fixture(scope="session")
def emulated() -> Driver:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if compiler is None or emulator is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64")
    path = built(compiler, "SOLITON_ARM64", ["-O1", "-static"])
    return Driver(path, (emulator, "-cpu", "max"))


@pytest.fixture(scope="session")
def expected(host: Driver) -> list[str]:
    return host.run("baseline")


def compare(results: list[str], expected: list[str]) -> None:
    assert len(results) == len(expected) > 500
    for result, other in zip(results, expected, strict=True):
        if " near " not in other:
            assert result == other
            continue
        name, numbers = result.split(" near ")
        other_name, other_numbers = other.split(" near ")
        assert name == other_name
        tolerance, *values = np.array(numbers.split(), np.float64)
        close = np.array(other_numbers.split()[1:], np.float64)
        assert np.abs(values - close).max() <= tolerance * np.abs(close).max(), name


@pytest.mark.parametrize("isa", ISAS[HOST][:-1])
def test_all_give_what_plain_code_gives(isa: str, host: Driver, expected: list[str]) -> None:
    if isa not in host.run():
        pytest.skip(f"this processor has no {isa}")
    compare(host.run(isa), expected)


@pytest.mark.parametrize("isa", ISAS["SOLITON_ARM64"])
def test_arm64_gives_what_this_processor_gives(
    isa: str, emulated: Driver, expected: list[str]
) -> None:
    compare(emulated.results(isa), expected)


@pytest.mark.parametrize(
    ("processor", "isas"),
    [("cortex-a53", ["neon", "baseline"]), ("cortex-a76", ["neon_dotprod", "neon", "baseline"])],
)
def test_dot_products_are_used_where_the_processor_has_them(
    processor: str, isas: list[str], emulated: Driver
) -> None:
    emulator = emulated.runner[0]
    assert emulated._replace(runner=(emulator, "-cpu", processor)).run() == isas
