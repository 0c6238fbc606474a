"""docs/clients.md shows which client is tested with which feature, and every test exists."""

import ast
import runpy
from collections.abc import Callable
from pathlib import Path

from tests.support.client_matrix import FEATURES, MATRIX, Elsewhere

ROOT = Path(__file__).parents[2]


def test_the_table_is_current() -> None:
    page: Callable[[], str] = runpy.run_path(str(ROOT / "scripts/client_matrix.py"))["page"]
    assert page() == (ROOT / "docs" / "clients.md").read_text(), "run scripts/client_matrix.py"


def test_there_are_at_least_twenty_clients_and_every_cell_is_answered_for() -> None:
    assert len(MATRIX) >= 20
    assert all(set(cells) == set(FEATURES) for cells in MATRIX.values())


def test_every_test_of_its_own_exists() -> None:
    named = {
        cell for cells in MATRIX.values() for cell in cells.values() if isinstance(cell, Elsewhere)
    }
    for file, name in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
