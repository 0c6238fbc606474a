"""Converted models: made once, and named only when they are complete."""

import shutil
from collections.abc import Callable
from pathlib import Path


def written(path: Path, write: Callable[[Path], None]) -> Path:
    """`path`, a file or a directory, which `write` makes if it does not exist."""
    if not path.exists():
        partial = path.with_name(f"partial-{path.name}")
        if partial.is_dir():
            shutil.rmtree(partial)
        write(partial)
        partial.rename(path)
    return path
