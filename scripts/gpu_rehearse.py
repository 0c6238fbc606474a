"""Rehearses scripts/gpu_check.py without a GPU, in a copy of the checkout.

    python scripts/gpu_rehearse.py [COMMAND …]

Needs the archive that `scripts/gpu_carry.py --emulated` makes for the same interpreter: the
emulator's library then stands in place of the CUDA module, and models are tiny. A step must end
well, or say that a rehearsal cannot run it. Its figures mean nothing.

Owns the copy, and what counts as a step that ran.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gpu_carry import ARCHIVE  # noqa: E402
from scripts.gpu_plan import COMMANDS  # noqa: E402
from scripts.gpu_report import RESULTS  # noqa: E402

_IMPOSSIBLE = ("skipped: a rehearsal", "skipped: not carried")


def main(argv: Sequence[str]) -> int:
    tree = ROOT / "build" / "gpu-rehearsal"
    copy_checkout(tree)
    (tree / "build").mkdir(exist_ok=True)
    shutil.copy2(ARCHIVE, tree / "build")
    failed = [name for name in argv or COMMANDS if not rehearse(tree, [name])]
    print(f"failed: {', '.join(failed)}" if failed else "every step ran")
    return 1 if failed else 0


def copy_checkout(tree: Path) -> None:
    """All files that git tracks or would track: no module that was compiled here."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def rehearse(
    tree: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> bool:
    """Runs a command of gpu_check.py there; whether each of its steps ran."""
    out = tree / "out"
    subprocess.run(
        [sys.executable, "scripts/gpu_check.py", *arguments, "--out", out],
        cwd=tree,
        env={**os.environ, **(environment or {})},
    )
    steps = json.loads((out / RESULTS).read_text())["steps"]
    reasons = [step["reason"] for step in steps.values()]
    return bool(reasons) and all(not each or each.startswith(_IMPOSSIBLE) for each in reasons)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
