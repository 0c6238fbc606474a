"""Runs llama.cpp's own tests of its server against this one.

usage: llama_server_tests.py [PYTEST-ARGUMENT…]

Their sources are taken from the source distribution of llama-cpp-python on PyPI into
build/llama-server-tests, once. tests/llama_server/applies.py says which have no place here, and
why; each of the others must pass.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from scripts.sdist import take  # noqa: E402

OURS = ROOT / "tests" / "llama_server"
THEIRS = ROOT / "build" / "llama-server-tests" / "llama.cpp"
TESTS = THEIRS / "tools" / "server" / "tests"
VENDOR = "vendor/llama.cpp/"
TAKEN = ("tools/server/tests/", "models/templates/")
VERSION = "0.3.36"


def main() -> int:
    if not TESTS.exists() and (failure := take("llama-cpp-python", VERSION, _place)):
        sys.stderr.write(f"{failure}\n")
        return 1
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{OURS}:{TESTS}",
        "LLAMA_SERVER_BIN_PATH": str(OURS / "stand_in.py"),
    }
    # Their conftest.py starts every model once, to have it downloaded; plugin.py takes its place.
    command = [
        sys.executable, "-m", "pytest", "--noconftest", "-c", str(TESTS / "pytest.ini"), "-q",
        "-p", "tests.llama_server.plugin", "-p", "no:schemathesis", "-p", "no:asyncio",
        *(sys.argv[1:] or ["unit"]),
    ]  # fmt: skip
    return subprocess.run(command, cwd=TESTS, env=environment).returncode


def _place(path: str) -> Path | None:
    """Where a file of the distribution goes."""
    inside = path.removeprefix(VENDOR)
    return THEIRS / inside if inside != path and inside.startswith(TAKEN) else None


if __name__ == "__main__":
    raise SystemExit(main())
