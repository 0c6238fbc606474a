"""The page's pure modules, checked by node's own test runner."""

import subprocess
from pathlib import Path

import pytest


@pytest.mark.clients
def test_the_arithmetic_of_the_page() -> None:
    result = subprocess.run(
        ["node", "--test", "arithmetic.test.mjs"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-8000:]
