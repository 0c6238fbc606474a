"""What has been measured so far, in a file: a process that is ended early loses only the rest.

Figures have two names, {group: {name: number}}. Knows no group.
"""

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Groups = dict[str, dict[str, Any]]


class Figures:
    """A file that is rewritten after every change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.groups: Groups = {}

    def put(self, group: str, figures: Mapping[str, Any]) -> None:
        self.groups.setdefault(group, {}).update(figures)
        told = self._file.with_suffix(".new")
        told.write_text(json.dumps(self.groups))
        told.replace(self._file)
        for name, value in figures.items():
            print(f"{group} {name}: {_shown(name, value)}", flush=True)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A failure inside is recorded, and the next measurements still run."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever a rival or a card comes up with
            traceback.print_exc()
            self.put("errors", {name: f"{type(error).__name__}: {error}"[:300]})


def merged(all_groups: Iterable[Groups]) -> Groups:
    """The figures of several files."""
    result: Groups = {}
    for groups in all_groups:
        for group, figures in groups.items():
            result.setdefault(group, {}).update(figures)
    return result


def _shown(name: str, value: Any) -> str:
    """A figure in a line; of the parts of a profile, a line each."""
    if isinstance(value, float):
        return f"{value:.1%}" if name.endswith("share") else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_shown(key, each)}" for key, each in value.items())
    if isinstance(value, list):
        return "".join(f"\n  {_shown(name, each)}" for each in value)
    return str(value)
