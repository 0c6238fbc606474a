"""The CUDA kernels as a module that runs on the CPU (tests/native/cuda_emulator) or on a GPU, and
memory for them.

The emulated module has the functions of `engine.native._cuda`. Its device memory is host memory,
such as a torch tensor on the CPU. `SOLITON_CUDA_EMULATOR_SEED` in the environment shuffles the
order in which blocks, warps and lanes run.
"""

import ctypes
import fcntl
import importlib.util
import math
import mmap
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

from engine.native import cuda as cuda_native

ROOT = Path(__file__).parents[2]
EMULATOR = ROOT / "tests/native/cuda_emulator"
# Kept, so that a second run compiles only what has changed.
BUILD = ROOT / "build/cuda_emulated"
ENOUGH = "-O1 -g1"
# No test runs this machine code, and the compiler spends half of its time on optimising it.
QUICK = "-Xcicc -O0 -Xptxas -O0"

NO_ACCESS = 0  # PROT_NONE, for which the mmap module has no name

_libc = ctypes.CDLL(None, use_errno=True)


def compiler() -> str:
    """The emulator's C++ compiler. Skips without one or without an x86-64 processor, unless native
    code is required.
    """
    found = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    missing = ""
    if found is None:
        missing = "no C++ compiler"
    elif platform.machine() not in ("x86_64", "AMD64"):
        missing = f"the emulator was never run on {platform.machine()}"
    if missing and "SOLITON_REQUIRE_NATIVE" not in os.environ:
        pytest.skip(missing)
    assert found is not None, missing
    return found


def build(target: str = "_cuda") -> Path:
    """Builds the emulated module, or cuda_driver; returns its file."""
    options = {
        "CMAKE_CXX_FLAGS_RELEASE": ENOUGH,
        "CMAKE_CXX_COMPILER": compiler(),
        "SOLITON_CUDA_EMULATED": "ON",
    }
    return _built(BUILD, target, options)


def build_for_gpus() -> Path:
    """Builds the module for every supported kind of GPU; skips without a CUDA compiler."""
    if shutil.which("nvcc") is None:
        pytest.skip("no CUDA compiler")
    options = {"SOLITON_CUDA": "ON", "CMAKE_CUDA_FLAGS": QUICK}
    return _built(ROOT / "build/cuda", "_cuda", options)


def _built(place: Path, target: str, options: dict[str, str]) -> Path:
    """Runs a build with all cores, one process at a time."""
    options |= {
        "CMAKE_BUILD_TYPE": "Release",
        "Python_EXECUTABLE": sys.executable,
        "SOLITON_WERROR": "ON",
    }
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-G", "Ninja", "-B", ".", "-S", str(ROOT)]
            + [f"-D{name}={value}" for name, value in options.items()],
            ["cmake", "--build", ".", "--target", target],
        ):
            run = subprocess.run(
                command,
                cwd=place,
                env={**os.environ, "PATH": tools},
                capture_output=True,
                text=True,
            )
            assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-10_000:]
    (path,) = (place / "csrc/cuda").glob("_cuda*.so" if target == "_cuda" else target)
    return path


@cache
def emulated_module() -> ModuleType:
    """What `engine.native._cuda` is on a GPU."""
    spec = importlib.util.spec_from_file_location("_cuda", build())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def device_module() -> ModuleType:
    """`engine.native._cuda` and a GPU for it; skips if either is missing."""
    if cuda_native.MISSING:
        pytest.skip(f"engine/native/_cuda: {cuda_native.MISSING}")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return cuda_native.kernels


@pytest.fixture(scope="session")
def emulated() -> ModuleType:
    """The module on the emulator, which reports errors in more detail than a GPU does."""
    return emulated_module()


@pytest.fixture(
    scope="session", params=["emulated", pytest.param("device", marks=pytest.mark.cuda)]
)
def cuda(request: pytest.FixtureRequest) -> ModuleType:
    """The module, on the emulator and on a GPU."""
    return emulated_module() if request.param == "emulated" else device_module()


@pytest.fixture
def placed(cuda: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors that a test makes with torch lie, and are drawn, where the kernels of `cuda` run."""
    if device_of(cuda).type == "cpu":
        yield
        return
    monkeypatch.setattr(torch, "Generator", partial(torch.Generator, device="cuda"))
    with torch.device("cuda"):
        yield


@pytest.fixture
def set_knobs(cuda: ModuleType) -> Iterator[Callable[..., None]]:
    """Sets the knobs of `cuda` (csrc/cuda/knobs.h) until the test ends."""
    yield cuda.set_knobs
    cuda.set_knobs()


def device_of(cuda: ModuleType) -> torch.device:
    """Where its kernels run."""
    return torch.device("cuda" if cuda.__name__ == "engine.native._cuda" else "cpu")


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that ends where memory ends, so that a kernel which touches more is ended with an
    error. Lives until the process ends. On a GPU it is a plain copy: tests/native/cuda_driver.cpp
    checks this there.
    """
    if tensor.is_cuda:
        return tensor.clone(memory_format=torch.contiguous_format)
    n_bytes = tensor.numel() * tensor.element_size()
    n_kept = -(-n_bytes // 16) * 16  # so that it is aligned as device memory is
    n_mapped = (-(-n_kept // mmap.PAGESIZE) + 1) * mmap.PAGESIZE
    memory = mmap.mmap(-1, n_mapped)
    buffer = (ctypes.c_char * n_mapped).from_buffer(memory)
    end = ctypes.addressof(buffer) + n_mapped - mmap.PAGESIZE
    assert _libc.mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, NO_ACCESS) == 0
    flat = torch.frombuffer(
        memory,
        dtype=tensor.dtype,
        count=max(1, math.prod(tensor.shape)),
        offset=n_mapped - mmap.PAGESIZE - n_kept,
    )
    copy = flat[: tensor.numel()].view(tensor.shape)
    copy.copy_(tensor)
    return copy


def step_state(cuda: ModuleType, pos: int, token_ids: list[int]) -> torch.Tensor:
    """A StepState for one pass over these tokens, where the kernels of `cuda` run."""
    state = torch.zeros(cuda.state_bytes // 8, dtype=torch.int64, device=device_of(cuda))
    state[0], state[1] = pos, len(token_ids)
    state[8 : 8 + len(token_ids)] = torch.tensor(token_ids)
    return state
