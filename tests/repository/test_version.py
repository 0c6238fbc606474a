"""pyproject.toml has the version; the changelog and the program agree with it."""

import re
import tomllib
from pathlib import Path

import pytest

from server.__main__ import main

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_newest_entry_of_the_changelog_is_the_version() -> None:
    entries = re.findall(
        r"^## \[(.+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    assert entries[0] == VERSION


def test_the_program_names_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"soliton {VERSION}\n"
