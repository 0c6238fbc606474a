"""What travels to a machine with a GPU: compiled here, so that no time is lost on compiling there.

    python scripts/gpu_carry.py [--architectures 90a] [--emulated] [--corpora DIR]

Makes build/gpu-carry.tar.xz: the native modules for the Python that runs this (which needs
nanobind, cmake, ninja and its headers, and nvcc in PATH), what else gpu_check.py starts, and the
corpora. `--emulated` builds the emulator's library instead, for a rehearsal without a GPU.

Owns what is in the archive, whether it fits the sources, and how it gets into the checkout.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
CARRY = ROOT / "build" / "gpu-carry"
ARCHIVE = CARRY.with_suffix(".tar.xz")
BUILD = ROOT / "build" / "gpu-native"
ARCHITECTURES = "80;89;90a"
MODULES, CORPORA, SITE = "modules", "corpora", "site"
DRIVER, READER, MANIFEST = "cuda_driver", "read_bandwidth.so", "manifest.json"
_SOURCES = ("CMakeLists.txt", "csrc", "tests/native", "bench/gpu/read_bandwidth.cu")
# Where CUDA installs its programs; a shell may have none of these in PATH.
_TOOLS = (
    "/usr/local/cuda/bin",
    "/usr/local/cuda/compute-sanitizer",
    "/opt/nvidia/nsight-compute/*",
)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architectures", default=ARCHITECTURES, help="as nvcc names them")
    parser.add_argument("--emulated", action="store_true", help="to run on a CPU")
    parser.add_argument("--corpora", type=Path, default=ROOT.parent / "shared" / "corpora")
    args = parser.parse_args(argv)
    add_tools_to_path()
    shutil.rmtree(CARRY / MODULES, ignore_errors=True)
    (CARRY / MODULES).mkdir(parents=True)
    (CARRY / MANIFEST).unlink(missing_ok=True)
    if args.emulated:
        build_emulated()
    else:
        build(args.architectures.split(";"))
    if args.corpora.is_dir():
        (CARRY / CORPORA).mkdir(exist_ok=True)
        for file in args.corpora.iterdir():
            shutil.copyfile(file, CARRY / CORPORA / file.name)
    pack(is_emulated=args.emulated)
    print(f"{ARCHIVE.relative_to(ROOT)}: {ARCHIVE.stat().st_size / 2**20:.1f} MiB")
    return 0


def build(architectures: Sequence[str]) -> None:
    options = [
        "-DSOLITON_CUDA=ON",
        f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(f'{each}-real' for each in architectures)}",
    ]
    native = _cmake(BUILD, ["-DCMAKE_CUDA_FLAGS=-lineinfo", *options], ["all", DRIVER])
    _copy(native, "_cpu*.so", CARRY / MODULES)
    _copy(native / "csrc/cuda", "_cuda*.so", CARRY / MODULES)
    _copy(native / "csrc/cuda", DRIVER, CARRY)
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in architectures]
    source = ROOT / "bench/gpu/read_bandwidth.cu"
    options = ["-std=c++17", "-O3", "-shared", "-Xcompiler=-fPIC", *codes]
    subprocess.run(["nvcc", *options, "-o", str(CARRY / READER), str(source)], check=True)


def build_emulated() -> None:
    """The reader has no emulation: bench/gpu/limits.py does without it in a rehearsal."""
    options = ["-DSOLITON_CUDA_EMULATED=ON", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1"]
    native = _cmake(BUILD.with_name("gpu-emulated"), options, ["_cpu", "_cuda", DRIVER])
    _copy(native, "_cpu*.so", CARRY / MODULES)
    _copy(native / "csrc/cuda", "_cuda*.so", CARRY / MODULES)
    _copy(native / "csrc/cuda", DRIVER, CARRY)


def _cmake(directory: Path, options: Sequence[str], targets: Sequence[str]) -> Path:
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    configure = [
        "cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(directory), "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}", *options,
    ]  # fmt: skip
    for command in (configure, ["cmake", "--build", str(directory), "--target", *targets]):
        subprocess.run(command, check=True, env={**os.environ, "PATH": tools})
    return directory


def _copy(directory: Path, pattern: str, target: Path) -> None:
    for file in directory.glob(pattern):
        shutil.copy2(file, target)


def pack(*, is_emulated: bool) -> None:
    manifest = {"sources": sources_hash(), "python": soabi(), "emulated": is_emulated}
    (CARRY / MANIFEST).write_text(json.dumps(manifest) + "\n")
    with tarfile.open(ARCHIVE, "w:xz", preset=2) as archive:
        archive.add(CARRY, CARRY.name)


def sources_hash() -> str:
    """Of all files that the binaries are made of."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def soabi() -> str:
    """The binary interface of this Python, such as cpython-312-x86_64-linux-gnu."""
    return str(sysconfig.get_config_var("SOABI"))


def is_emulated() -> bool:
    """Whether what is carried is for a rehearsal."""
    return bool(_manifest().get("emulated"))


def install() -> str:
    """Unpacks the archive and copies the native modules into the checkout. Returns why they cannot
    be used, or "".
    """
    name = ARCHIVE.relative_to(ROOT)
    if ARCHIVE.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(CARRY.parent, filter="data")
    manifest = _manifest()
    if not manifest:
        return f"{name} is not here"
    if manifest["sources"] != sources_hash():
        return f"{name} was made of other sources"
    if manifest["python"] != soabi():
        return f"{name} is for {manifest['python']}, not {soabi()}"
    for module in (CARRY / MODULES).iterdir():
        shutil.copy2(module, ROOT / "engine" / "native")
    test = "from engine.native import cpu, cuda; print(cpu.MISSING or cuda.MISSING, end='')"
    run = subprocess.run([sys.executable, "-c", test], cwd=ROOT, capture_output=True, text=True)
    return (run.stdout + run.stderr).strip()[-300:]


def _manifest() -> dict[str, object]:
    try:
        manifest: dict[str, object] = json.loads((CARRY / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return manifest


def add_tools_to_path() -> None:
    """Appends the directories of CUDA's programs to PATH."""
    found = [str(each) for tools in _TOOLS for each in sorted(Path("/").glob(tools[1:]))]
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *found])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
