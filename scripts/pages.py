"""Fetch other people's pages for the tests into tests/pages: mikupad and llama.cpp's web page from
the source distribution of ik-llama-cpp-python on PyPI, and the libraries of mikupad from npm.

Where a registry cannot be had, it says so in one line and exits with 1; the tests of these pages
are skipped then.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from scripts.sdist import run, take  # noqa: E402

PAGES = ROOT / "tests" / "pages"
SERVER = "vendor/ik_llama.cpp/examples/server/"
FILES = {
    f"{SERVER}public_mikupad/index.html": PAGES / "mikupad.html",
    f"{SERVER}public_llamacpp/index_llamacpp.html": PAGES / "llama-ui.html",
}


def main() -> int:
    failures = [run(_npm()), _distribution()]
    for failure in filter(None, failures):
        sys.stderr.write(f"{failure}\nthe tests of other people's pages that need it are skipped\n")
    return 1 if any(failures) else 0


def _npm() -> list[str]:
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
    return ["npm", "install", *options, "--prefix", str(PAGES)]


def _distribution() -> str | None:
    """Take the two pages out of 42 MB of sources."""
    if all(page.exists() for page in FILES.values()):
        return None
    if failure := take("ik-llama-cpp-python", "0.1.5", FILES.get):
        return failure
    missing = [page.name for page in FILES.values() if not page.exists()]
    return f"the sources lack {' and '.join(missing)}" if missing else None


if __name__ == "__main__":
    raise SystemExit(main())
