"""Saves and loads training checkpoints.

Owns the file's atomicity. Knows nothing of what is inside.
"""

import os
from pathlib import Path
from typing import Any

import torch


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Writes beside the target and renames, so an interruption never leaves half a file."""
    part = path.with_name(path.name + ".part")
    torch.save(state, part)
    os.replace(part, path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
