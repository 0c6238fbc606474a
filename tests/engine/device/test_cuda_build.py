"""The real CUDA module: built where there is a CUDA compiler, imported without a driver, with
machine code for every kind of GPU that is served.
"""

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cuda_module import ROOT, build_for_gpus

FATBIN = 0xBA55ED50  # begins every fat binary, as little-endian bytes
PTX, CUBIN = 1, 2


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
