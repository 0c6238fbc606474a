"""Writes the tables of request fields in docs/api.md from the request models.

A table is between `<!-- fields: NAME -->` and `<!-- end -->`. A field that is only another name for
a field is listed in its row. Fields that are not served have a table behind `<!-- unserved -->`.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from engine import SamplingSettings  # noqa: E402
from server.request.unserved_fields import INSTEAD, QUIET, REFUSED, WARNED, WHY  # noqa: E402
from server.schema.anthropic import MessagesRequest  # noqa: E402
from server.schema.chat import ChatCompletionRequest  # noqa: E402
from server.schema.common import GenerationRequest  # noqa: E402
from server.schema.completions import CompletionRequest  # noqa: E402
from server.schema.constraint import ConstraintFields  # noqa: E402
from server.schema.ollama import OllamaChat, OllamaGenerate, OllamaRequest  # noqa: E402
from server.schema.responses import ResponsesRequest  # noqa: E402
from server.schema.sampling import SamplingFields  # noqa: E402
from server.schema.score import ScoreRequest  # noqa: E402
from server.schema.tokens import TemplateFields  # noqa: E402

PAGE = ROOT / "docs" / "api.md"
TABLE = re.compile(r"(<!-- fields: (\w+) -->\n\n)(?:\|.*\n)*(\n*<!-- end -->)")
UNSERVED = re.compile(r"(<!-- unserved -->\n\n)(?:\|.*\n)*(\n*<!-- end -->)")
HEAD = "| field | type | default | means | other names |\n|---|---|---|---|---|\n"

# Table -> (the model whose fields it lists, models whose fields it leaves out).
MODELS: dict[str, tuple[type[BaseModel], tuple[type[BaseModel], ...]]] = {
    "sampling": (SamplingFields, ()),
    "constraints": (ConstraintFields, ()),
    "shared": (GenerationRequest, (SamplingFields, ConstraintFields)),
    "completions": (CompletionRequest, (GenerationRequest,)),
    "chat": (ChatCompletionRequest, (GenerationRequest,)),
    "responses": (ResponsesRequest, (GenerationRequest,)),
    "messages": (MessagesRequest, (GenerationRequest,)),
    "ollama_chat": (OllamaChat, ()),
    "ollama_generate": (OllamaGenerate, (OllamaRequest,)),
    "score": (ScoreRequest, (TemplateFields,)),
}


def page() -> str:
    """docs/api.md with its tables as they should be."""
    text = TABLE.sub(
        lambda match: f"{match[1]}{HEAD}{table(match[2])}\n<!-- end -->", PAGE.read_text()
    )
    return UNSERVED.sub(lambda match: f"{match[1]}{unserved()}\n<!-- end -->", text)


def unserved() -> str:
    """The fields that are not served, those of one kind after the other."""
    head = "| field | is | but asks for nothing as | note |\n|---|---|---|---|\n"
    told = [("refused", REFUSED, INSTEAD), ("told in a warning", WARNED, WHY)]
    rows = [
        f"| `{name}` | {kind} | {_values(neutral)} | {notes.get(name, '')} |\n"
        for kind, fields, notes in told
        for name, neutral in sorted(fields.items())
    ]
    rows += [f"| `{name}` | accepted |  |  |\n" for name in sorted(QUIET)]
    return head + "".join(rows)


def _values(values: tuple[Any, ...]) -> str:
    """1 and 1.0 are told once; true is not 1."""
    told = [value for value in values if not (isinstance(value, float) and value.is_integer())]
    return ", ".join(f"`{json.dumps(value)}`" for value in told)


def table(name: str) -> str:
    model, others = MODELS[name]
    elsewhere = {field for other in others for field in other.model_json_schema()["properties"]}
    schema = model.model_json_schema()
    fields = {
        field: value for field, value in schema["properties"].items() if field not in elsewhere
    }
    return "".join(rows(fields, schema.get("required", [])))


def rows(fields: dict[str, dict[str, Any]], required: list[str]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for field, value in fields.items():
        if setting := value.get("x-another-name-of"):
            _, client, note = re.split(r" \(|\)\.", value["description"], maxsplit=2)
            said = f"{client};{note.rstrip('.')}" if note else client
            names.setdefault(setting, []).append(f"`{field}` ({said})")
    for field, value in fields.items():
        if "x-another-name-of" not in value:
            default = "required" if field in required else default_of(field)
            cells = [
                f"`{field}`",
                type_of(value),
                default,
                value.get("description", ""),
                "; ".join(names.get(field, [])),
            ]
            yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def type_of(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return "object"
    if "anyOf" in value:
        types = dict.fromkeys(type_of(branch) for branch in value["anyOf"])
        return " or ".join(name for name in types if name != "null")
    if value.get("type") == "array" and "items" in value:
        return f"list of {_plural(type_of(value['items']))}"
    return str(value.get("type", "anything"))


def _plural(name: str) -> str:
    """The plural of a type, or of several joined by "or"."""
    if name.startswith("list of "):
        return name.replace("list", "lists", 1)
    return " and ".join(f"{each}s" for each in name.split(" or "))


def default_of(field: str) -> str:
    for setting in dataclasses.fields(SamplingSettings):
        if setting.name == field and isinstance(setting.default, bool | int | float):
            return f"`{json.dumps(setting.default)}`"
    return "null"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
