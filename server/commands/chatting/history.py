"""What the user typed, kept over starts: a file with one entry per line, as a JSON string.

Owns the file; only its user may read it. Knows no editor. A disk that is full or read-only costs
the history, never the chat.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_MOST_ENTRIES = 1000


class History:
    """The entries of earlier starts, and a place for new ones. Several chats may add at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[str]:
        """Oldest first. A file that has grown to twice the limit is cut."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        kept = [entry for line in lines[-_MOST_ENTRIES:] if (entry := _read(line)) is not None]
        if len(lines) > 2 * _MOST_ENTRIES:
            self._replace(kept)
        return kept

    def add(self, entry: str) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._path, [entry], os.O_APPEND)

    def _replace(self, entries: Iterable[str]) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            _write(new, entries, os.O_TRUNC)
            new.replace(self._path)


def _write(path: Path, entries: Iterable[str], flag: int) -> None:
    text = "".join(f"{json.dumps(entry)}\n" for entry in entries)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def _read(line: str) -> str | None:
    with suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, str):
            return entry
    return None
