"""Compares every family with transformers and writes the table of differences in docs/models.md.

    python scripts/family_table.py

Runs what tests/engine/model and tests/engine/gguf run: the same models, ids and files, in float32.
The table is between `<!-- differences -->` and `<!-- end -->`; its figures are the largest
differences of logits, rounded up to two digits, so they move a little with the processor. Takes a
minute.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from engine.checkpoint.families.known import FAMILIES  # noqa: E402
from scripts.gguf_pairs import ALL  # noqa: E402
from tests.engine.gguf.test_pairs import expected, last_logits  # noqa: E402
from tests.engine.gguf.test_pairs import loaded as loaded_gguf  # noqa: E402
from tests.engine.model.test_model_parity import (  # noqa: E402
    loaded,
    logits_after,
    oracle_logits,
    prompt,
)
from tests.support.family_models import FAMILY_MODELS  # noqa: E402
from tests.support.tiny_models import FAMILIES as LLAMA_MODELS  # noqa: E402
from tests.support.tiny_models import Family, architecture_of, save_model  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
TABLE = re.compile(r"(<!-- differences -->\n\n)(?:\|.*\n)*(\n*<!-- end -->)")
HEAD = (
    "| architecture | random models, safetensors | difference | files of llama.cpp's converter, "
    "GGUF | difference |\n|---|---|---|---|---|\n"
)
MODELS = {**LLAMA_MODELS, **FAMILY_MODELS}


def main() -> None:
    lines = "".join(map(row, FAMILIES))
    page, n_tables = TABLE.subn(lambda found: f"{found[1]}{HEAD}{lines}\n<!-- end -->", text())
    if n_tables != 1:
        sys.exit(f"{PAGE}: {n_tables} tables between the markers, not 1")
    PAGE.write_text(page, "utf-8")


def text() -> str:
    return PAGE.read_text("utf-8")


def row(architecture: str) -> str:
    models, pairs = models_of(architecture), pairs_of(architecture)
    of_models = largest(map(model_difference, models.values()))
    of_pairs = largest(map(pair_difference, pairs))
    cells = [f"`{architecture}`", ", ".join(models), of_models, ", ".join(pairs), of_pairs]
    return f"| {' | '.join(cells)} |\n"


def models_of(architecture: str) -> dict[str, Family]:
    """The models that the tests build of it, by name."""
    return {
        name: family for name, family in MODELS.items() if architecture_of(family) == architecture
    }


def pairs_of(architecture: str) -> list[str]:
    """The GGUF files that were converted from it."""
    return [
        name
        for pair in ALL
        if architecture_of(pair.family) == architecture
        for name in ([f"{pair.name}-{each}" for each in pair.quantised] or [pair.name])
    ]


def model_difference(family: Family) -> float:
    with tempfile.TemporaryDirectory() as place:
        oracle = save_model(Path(place), family)
        ours = logits_after(loaded(Path(place)), prompt(), n_prefill=0)
    return float(np.abs(ours - oracle_logits(oracle, prompt())).max())


def pair_difference(name: str) -> float:
    token_ids, logits = expected(name)
    engine = loaded_gguf(name, len(token_ids), dtype="float32")
    return float(np.abs(last_logits(engine, token_ids, len(logits)) - logits).max())


def largest(differences: Iterator[float]) -> str:
    """Rounded up; empty if nothing was compared."""
    found = max(differences, default=None)
    if found is None:
        return ""
    return f"{Context(prec=2, rounding=ROUND_CEILING).create_decimal(Decimal(found)):.1e}"


if __name__ == "__main__":
    main()
