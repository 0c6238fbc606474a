"""The table of differences in docs/models.md names what the tests compare, within their bound."""

import runpy
from typing import Any

from engine.checkpoint.families.known import FAMILIES
from tests.engine.model.test_model_parity import TOLERANCE
from tests.repository.test_docs import ROOT, rows

SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/family_table.py"))
AGAIN = "run scripts/family_table.py"


def test_the_table_lists_all_that_is_compared() -> None:
    found = rows(SCRIPT["text"](), "architecture")
    assert [cells[0] for cells in found] == list(FAMILIES), AGAIN
    for architecture, models, difference, files, of_files in found:
        assert models.split(", ") == list(SCRIPT["models_of"](architecture)), AGAIN
        assert 0 < float(difference) < TOLERANCE
        assert files == ", ".join(SCRIPT["pairs_of"](architecture)), AGAIN
        assert bool(files) == bool(of_files)
        assert float(of_files or 0) < TOLERANCE


def test_every_file_of_llama_cpp_is_in_the_table() -> None:
    files = {file.stem for file in (ROOT / "tests/engine/gguf/pairs").glob("*.gguf")}
    assert {name for each in FAMILIES for name in SCRIPT["pairs_of"](each)} == files
