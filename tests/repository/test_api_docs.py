"""docs/api.md lists the fields that the server accepts."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()


@pytest.mark.parametrize("script", ["request_fields.py", "openai_differences.py"])
def test_the_tables_are_made_from_the_schema(script: str) -> None:
    page: Callable[[], str] = runpy.run_path(str(ROOT / "scripts" / script))["page"]
    assert page() == PAGE, f"run scripts/{script}"


def test_every_field_is_on_the_page() -> None:
    for model in (CompletionRequest, ChatCompletionRequest):
        missing = [
            name for name in model.model_json_schema()["properties"] if f"`{name}`" not in PAGE
        ]
        assert not missing
