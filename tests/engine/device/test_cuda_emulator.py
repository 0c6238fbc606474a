"""The emulator of CUDA: right kernels give the same result in every order, wrong ones are found.

tests/native/cuda_emulator/probes.cpp has the kernels.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cuda_module import EMULATOR, ROOT, compiler
from tests.support.kept import kept

pytestmark = pytest.mark.timeout(600)

SEEDS = range(6)
CHECKS = ("-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error")


@pytest.fixture(scope="session")
def results() -> dict[str, set[str]]:
    """For each kernel, its results over all seeds."""
    command = [compiler(), "-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Wno-unknown-pragmas"]
    command += ["-Werror", "-DSOLITON_CUDA_EMULATED", "-I", str(EMULATOR), *CHECKS]
    command += ["-I", str(ROOT / "csrc/cuda"), *map(str, EMULATOR.glob("*.cpp"))]
    command += [str(ROOT / "csrc/cuda/device.cpp")]

    def build(place: Path) -> None:
        subprocess.run([*command, "-o", place / "probes"], check=True, timeout=300)

    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True)
    sources = [*EMULATOR.rglob("*.*"), *(ROOT / "csrc/cuda").glob("*.*")]
    probes = kept("probes", [*sorted(sources), version.stdout, *command], build) / "probes"
    results: dict[str, set[str]] = {}
    for seed in SEEDS:
        environment = {**os.environ, "SOLITON_CUDA_EMULATOR_SEED": str(seed)}
        for line in run(probes, environment).splitlines():
            name, _, result = line.partition(": ")
            results.setdefault(name, set()).add(result)
    return results


def run(probes: Path, environment: dict[str, str]) -> str:
    return subprocess.run(
        [probes], env=environment, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def weighted(values: list[float]) -> str:
    """The lines in which probes.cpp prints what a kernel wrote."""
    return f"{sum((i + 1) * value for i, value in enumerate(values)):.9g}"


COPIED = [float(i) for i in range(512)]
COPIED[20:24] = [0.0] * 4  # copies that are not valid are zeros
CHAIN = [4.0 * (128 - i) for i in range(128)] + [2.0 * (128 - i) for i in range(128)]
RIGHT = {
    "reverse": [float(128 - i % 128) for i in range(384)],
    "neighbours": [float(i ^ 1) for i in range(128)],
    "copy": COPIED,
    # Sums of 32 lanes and their largest, 16 odd lanes, the sum again; then any of the first warp,
    # all of the first warp.
    "sums": [
        2.0 * sum(range(i // 32 * 32, i // 32 * 32 + 32)) + (i // 32 * 32 + 31) + 16 + 2 * (i < 32)
        for i in range(128)
    ],
    "product": [
        float(sum((i - 2 * k) * (k * j + 1) for k in range(16)))
        for i in range(16)
        for j in range(8)
    ],
    "last block": [1.0, 2, 3, 4, 5, 6, 7, 28],
    "chain": CHAIN,
    "chain that reads early, one by one": CHAIN,
    "without wait, one by one": [1.0] * 128,
    "much shared memory": [1.0] * 128,
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_has_one_result_in_every_order(
    results: dict[str, set[str]], name: str
) -> None:
    assert results[name] == {weighted(RIGHT[name])}


@pytest.mark.parametrize(
    "name",
    [
        "reverse without barrier",
        "neighbours without barrier",
        "copy without wait",
        "copy without barrier",
        "chain that reads early",
    ],
)
def test_what_is_read_before_it_is_there_is_nan(results: dict[str, set[str]], name: str) -> None:
    assert results[name] <= {"nan", "-nan"}


def test_an_order_that_nobody_promised_is_shown_by_the_seeds(results: dict[str, set[str]]) -> None:
    assert len(results["who is first"]) > 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("copy beyond", r"outside of the block's shared memory at probes.cpp:\d+"),
        ("copy misaligned", r"a misaligned address at probes.cpp:\d+"),
        ("words misaligned", r"an index out of range or a misaligned address"),
        ("divergent", r"threads of the block are at different barriers: 64 threads, first "),
        (
            "half of a warp",
            r"no thread can continue: .*in a shuffle of mask ffffffff at common.cuh:\d+",
        ),
        ("beyond", r"thread \(\d+, 0, 0\): a bad address: outside of dynamic shared memory"),
        ("before", r"wrote before its dynamic shared memory"),
        ("beyond static", r"thread \(127, 0, 0\): an index out of range"),
        ("global beyond", r"block \(4, 0, 0\), thread \(\d+, 0, 0\): a bad address: 0x"),
        ("without wait", r"no thread waited for the launch before this one"),
    ],
)
def test_a_wrong_kernel_ends_with_an_error_that_names_the_place(
    results: dict[str, set[str]], name: str, message: str
) -> None:
    for result in results[name]:
        assert re.search(f"the kernel launched at probes.cpp:\\d+ in .*{message}", result)


def test_more_shared_memory_must_be_asked_for(results: dict[str, set[str]]) -> None:
    assert results["too much shared memory"] == {"invalid argument"}
