"""Saves and loads training checkpoints.

Owns how the file is replaced atomically. Knows nothing of its content.
"""

import os
from pathlib import Path
from typing import Any

import torch


def save_checkpoint(state: dict[str, Any], path: Path) -> None:
    """Writes a temporary file and renames it, so an interruption never leaves half a file."""
    part = path.with_name(path.name + ".part")
    torch.save(state, part)
    os.replace(part, path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
