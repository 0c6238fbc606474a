"""How a prepared program waits until it has the machine to itself."""

import time
from pathlib import Path

_POLL_S = 0.05


def ready(gate: Path) -> Path:
    """The file that says that it is waiting."""
    return gate.with_suffix(".ready")


def go(gate: Path) -> Path:
    """The file that lets it go on."""
    return gate.with_suffix(".go")


def wait(gate: Path) -> None:
    ready(gate).touch()
    while not go(gate).exists():
        time.sleep(_POLL_S)
