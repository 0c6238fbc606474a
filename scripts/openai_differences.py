"""Writes into docs/api.md which keys the answers of OpenAI's routes have that OpenAI's do not: what
the response models have beyond the types of the official client, which are made of its schema.

The table is between `<!-- beyond OpenAI -->` and `<!-- end -->`.
"""

import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from server.schema.chat import ChatCompletion as OwnChat  # noqa: E402
from server.schema.chat import ChatCompletionChunk as OwnChunk  # noqa: E402
from server.schema.completions import Completion as OwnCompletion  # noqa: E402
from server.schema.models import ModelCard  # noqa: E402
from server.schema.responses_answer import ResponseObject  # noqa: E402

PAGE = ROOT / "docs" / "api.md"
TABLE = re.compile(r"(<!-- beyond OpenAI -->\n\n)(?:\|.*\n)*(\n*<!-- end -->)")
OBJECTS: tuple[tuple[str, type[BaseModel], type[BaseModel]], ...] = (
    ("completion", OwnCompletion, Completion),
    ("chat", OwnChat, ChatCompletion),
    ("chunk of a chat", OwnChunk, ChatCompletionChunk),
    ("response", ResponseObject, Response),
    ("model", ModelCard, Model),
)


def page() -> str:
    """docs/api.md with its table as it should be."""
    return TABLE.sub(lambda match: f"{match[1]}{table()}\n<!-- end -->", PAGE.read_text())


def table() -> str:
    found: dict[str, tuple[list[str], str]] = {}
    for name, own, theirs in OBJECTS:
        for path, means in beyond(own, theirs):
            found.setdefault(path, ([], means))[0].append(name)
    rows = [
        f"| `{path}` | {', '.join(names)} | {means.replace('|', '&#124;')} |\n"
        for path, (names, means) in found.items()
    ]
    return "| key | of | means |\n|---|---|---|\n" + "".join(rows)


def beyond(own: type[BaseModel], theirs: type[BaseModel], path: str = "") -> Iterator[Any]:
    """The path and the meaning of each key that only `own` has."""
    for name, field in own.model_fields.items():
        published = theirs.model_fields.get(name)
        if published is None:
            yield f"{path}{name}", (field.description or "").removeprefix("Extension. ")
            continue
        inner, their_inner = _models(field.annotation), _models(published.annotation)
        if len(inner) == len(their_inner) == 1:
            mark = "[]." if "list[" in str(field.annotation) else "."
            yield from beyond(inner[0], their_inner[0], f"{path}{name}{mark}")


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
