"""docs/api.md lists the fields that the server accepts."""

import runpy
from collections.abc import Callable
from pathlib import Path

from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()


def test_the_tables_are_made_from_the_schema() -> None:
    page: Callable[[], str] = runpy.run_path(str(ROOT / "scripts/request_fields.py"))["page"]
    assert page() == PAGE, "run scripts/request_fields.py"


def test_every_field_is_on_the_page() -> None:
    for model in (CompletionRequest, ChatCompletionRequest):
        missing = [
            name for name in model.model_json_schema()["properties"] if f"`{name}`" not in PAGE
        ]
        assert not missing
