"""The real CUDA module: built where there is a CUDA compiler, imported without a driver, with
machine code for every kind of GPU that is served.
"""

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cuda_module import ROOT, build_for_gpus
from tests.support.kept import kept

FATBIN = 0xBA55ED50  # begins every fat binary, as little-endian bytes
PTX, CUBIN = 1, 2
RESOURCES = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers",
    re.DOTALL,
)


# Kernels that a decode step spends its time in.
HOT = ("linear.cu", "attention.cu", "experts.cu")

# The compiler takes minutes on a machine with two processors.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def module() -> Path:
    return build_for_gpus()


def parts(module: bytes) -> Iterator[tuple[int, int]]:
    """(PTX or CUBIN, compute capability) of every part of the fat binaries in a module."""
    for found in re.finditer(re.escape(struct.pack("<I", FATBIN)), module):
        _, version, header_bytes, n_bytes = struct.unpack_from("<IHHQ", module, found.start())
        if (version, header_bytes) != (1, 16):
            continue  # the runtime looks for the same number
        at = found.start() + header_bytes
        end = at + n_bytes
        while at < end:
            kind, _, header_bytes, n_bytes = struct.unpack_from("<HHIQ", module, at)
            (capability,) = struct.unpack_from("<I", module, at + 28)
            yield kind, capability
            at += header_bytes + n_bytes


def test_there_is_code_for_every_gpu_that_is_served(module: Path) -> None:
    found = list(parts(module.read_bytes()))
    kinds = {(CUBIN, 80), (CUBIN, 89), (CUBIN, 90), (PTX, 90)}
    assert set(found) == kinds
    for kind in kinds:  # every file of kernels has them all
        assert found.count(kind) == len(found) // len(kinds)


@pytest.fixture(scope="module")
def resources() -> dict[str, tuple[int, int]]:
    """Of each kernel for Hopper, optimised as users have it: registers, and bytes that it spills or
    keeps in local memory.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no CUDA compiler")
    options = ["-std=c++20", "-O3", "-fmad=false", "-gencode", "arch=compute_90a,code=sm_90a"]
    command = [nvcc, *options, "-Xptxas", "-v", "-cubin"]

    def build(place: Path) -> None:
        for source in HOT:
            run = subprocess.run(
                [*command, "-o", place / f"{source}.cubin", ROOT / "csrc/cuda" / source],
                capture_output=True,
                text=True,
                timeout=900,
            )
            assert run.returncode == 0, run.stderr
            (place / f"{source}.txt").write_text(run.stderr, "utf-8")

    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    sources = sorted((ROOT / "csrc/cuda").glob("*.*"))
    place = kept("ptxas", [*sources, version.stdout, *command], build)
    return {
        kernel: (int(registers), sum(map(int, numbers)))
        for source in HOT
        for kernel, *numbers, registers in RESOURCES.findall(
            (place / f"{source}.txt").read_text("utf-8")
        )
    }


def test_no_kernel_spills(resources: dict[str, tuple[int, int]]) -> None:
    assert len(resources) >= 9 + 16 + 4, "kernels of all layouts and sizes"
    for kernel, (registers, n_bytes) in resources.items():
        assert n_bytes == 0, f"{kernel} with {registers} registers"


@pytest.mark.parametrize(("n_blocks", "n_layouts"), [(2, 3), (3, 2)])
def test_blocks_of_a_product_share_a_multiprocessor(
    resources: dict[str, tuple[int, int]], n_blocks: int, n_layouts: int
) -> None:
    """The next launch's blocks fetch weights beside the running ones. Each layout has a kernel for
    one row, and one for up to four.
    """
    of_few_rows = [
        registers for kernel, (registers, _) in resources.items() if f"Li1ELi{n_blocks}E" in kernel
    ]
    assert len(of_few_rows) == 2 * n_layouts
    assert max(of_few_rows) <= 65536 // (n_blocks * 256)


def test_the_module_is_imported_where_no_driver_can_be_found(module: Path) -> None:
    code = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("engine.native._cuda", sys.argv[1])
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
tape = kernels.Tape()
tape.embed(weights=0, n_out=1, n_in=64, layout=kernels.Layout.BF16, out=0)
for call in (lambda: tape.run(0, 1, 1024, 0), lambda: kernels.properties(0)):
    try:
        call()
    except RuntimeError as error:
        print(error)
"""
    # Even where there is one: no device is visible.
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [sys.executable, "-c", code, str(module)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(
        r"embed: .*(driver|device).*\nreading the properties of the device: .*(driver|device).*\n",
        run.stdout,
    )


def test_without_the_module_there_is_a_reason() -> None:
    code = """
import sys
sys.modules["engine.native._cuda"] = None
from engine.native import cuda as cuda_native
print(bool(cuda_native.MISSING))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "True\n", run.stderr
