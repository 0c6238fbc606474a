"""Files that take long to make, kept in build/kept for the next run of the tests.

Owns the places and when a file is made anew: when anything that it is made of has changed. Knows
nothing of what is kept.
"""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "kept"


def kept(name: str, made_of: Iterable[Path | str], make: Callable[[Path], None]) -> Path:
    """The directory that `make` filled in this run or in an earlier one.

    `made_of`: the files, and the text of everything else, on which the contents depend. Only the
    latest directory of a name is kept. If `make` fails, nothing is.
    """
    place = KEPT / f"{name}-{_digest(made_of)}"
    if place.exists():
        return place
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as fresh:
        made = Path(fresh) / "made"
        made.mkdir()
        make(made)
        for other in KEPT.iterdir():
            if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{16}}", other.name):
                shutil.rmtree(other)
        made.rename(place)
    return place


def _digest(made_of: Iterable[Path | str]) -> str:
    digest = hashlib.sha256()
    for part in made_of:
        content = part.encode() if isinstance(part, str) else part.read_bytes()
        label = "" if isinstance(part, str) else str(part.relative_to(ROOT))
        digest.update(f"{label} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]
