"""Fetch other people's pages for the tests into tests/pages: mikupad and llama.cpp's web page from
the source distribution of ik-llama-cpp-python on PyPI, and the libraries of mikupad from npm.

Where a registry cannot be had, it says so in one line and exits with 1; the tests of these pages
are skipped then.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PAGES = Path(__file__).parents[1] / "tests" / "pages"
# Its build requirements may come as wheels: to compile them would take minutes.
PACKAGE = "ik-llama-cpp-python"
LONGEST_S = 300
SERVER = "vendor/ik_llama.cpp/examples/server/"
FILES = {
    "mikupad.html": f"{SERVER}public_mikupad/index.html",
    "llama-ui.html": f"{SERVER}public_llamacpp/index_llamacpp.html",
}


def main() -> int:
    fetched = [_run(_npm()), _distribution()]
    return 0 if all(fetched) else 1


def _npm() -> list[str]:
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    return ["npm", "install", *options, "--prefix", str(PAGES)]


def _distribution() -> bool:
    """Take the two pages out of 42 MB of sources."""
    if all((PAGES / name).exists() for name in FILES):
        return True
    with tempfile.TemporaryDirectory() as folder:
        download = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", PACKAGE, "--dest", folder, f"{PACKAGE}==0.1.5",
        ]  # fmt: skip
        if not _run(download):
            return False
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            for member in tar:
                _, _, path = member.name.partition("/")
                for name in (name for name, file in FILES.items() if file == path):
                    source = tar.extractfile(member)
                    assert source is not None, f"{path} is a file"
                    with (PAGES / name).open("wb") as target:
                        shutil.copyfileobj(source, target)
    return all((PAGES / name).exists() for name in FILES)


def _run(command: list[str]) -> bool:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        failure = (result.stderr.strip().splitlines() or ["no message"])[-1]
        is_done = result.returncode == 0
    except subprocess.TimeoutExpired:
        failure, is_done = f"no end after {LONGEST_S} seconds", False
    if not is_done:
        sys.stderr.write(
            f"{' '.join(command[:4])} failed: {failure}\n"
            "the tests of other people's pages that need it are skipped\n"
        )
    return is_done


if __name__ == "__main__":
    raise SystemExit(main())
