"""Where chat templates are found: in a model directory, in a GGUF file's metadata, or in a file
that the user names.

Owns the names of files and keys, and which template is for requests with tools. Knows not what a
template means.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import ModelLoadError
from ...files import JsonObject, is_there, read_file
from ...gguf.metadata import Metadata
from ...text.tokenizer_json import CONFIG_FILE

TEMPLATE_FILE = "chat_template.jinja"
TOOL_TEMPLATE_FILE = "additional_chat_templates/tool_use.jinja"
MAX_TEMPLATE_BYTES = 256 * 1024
_KEY = "tokenizer.chat_template"


class TemplateSource(NamedTuple):
    """The text of a template, and of the one for requests with tools if there is another."""

    text: str
    tool_text: str | None
    where: str
    """File and key, for errors."""


def directory_source(path: Path) -> TemplateSource | None:
    """chat_template.jinja of `path`, else the one in tokenizer_config.json, else None.

    Requests with tools may have another one: TOOL_TEMPLATE_FILE, or the one named "tool_use".
    """
    if is_there(path / TEMPLATE_FILE):
        file, tool_file = path / TEMPLATE_FILE, path / TOOL_TEMPLATE_FILE
        return TemplateSource(
            _read(file), _read(tool_file) if is_there(tool_file) else None, str(file)
        )
    if not is_there(path / CONFIG_FILE):
        return None
    config = JsonObject.read(path / CONFIG_FILE)
    return _named(_templates(config), f"{config.where}: chat_template")


def metadata_source(metadata: Metadata) -> TemplateSource | None:
    """What the keys of a GGUF file hold; None if there is no template for all requests."""
    keys = {"default": _KEY, "tool_use": f"{_KEY}.tool_use"}
    found = {name: metadata.string(key) for name, key in keys.items() if metadata.has(key)}
    return _named(found, f"{metadata.where}: {_KEY}")


def file_source(file: Path) -> TemplateSource:
    """The template that the user wrote, for all requests. Raises ModelLoadError."""
    text = _read(file)
    if not text.strip():
        raise ModelLoadError(f"{file}: is empty; a chat template is text in Jinja's language")
    return TemplateSource(text, None, str(file))


def _named(templates: Mapping[str, str], where: str) -> TemplateSource | None:
    if "default" not in templates:
        return None
    return TemplateSource(templates["default"], templates.get("tool_use"), where)


def _read(file: Path) -> str:
    try:
        return read_file(file, MAX_TEMPLATE_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelLoadError(f"{file}: not UTF-8 at byte {error.start}") from error


def _templates(config: JsonObject) -> dict[str, str]:
    """Templates by name; one without a name is "default"."""
    value = config.values.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    if not isinstance(value, list):
        config.fail("chat_template", value, "a string or a list of named templates")
    named = [JsonObject(entry if isinstance(entry, dict) else {}, config.where) for entry in value]
    return {entry.string("name"): entry.string("template") for entry in named}
