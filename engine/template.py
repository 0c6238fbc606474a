"""The model's own chat template: messages -> the text that the model was trained on.

Owns the sandbox that templates run in, their size limits and the functions that the ecosystem's
templates expect. Knows no token ids: `chat.py` encodes what is rendered.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import ModelLoadError, TemplateError
from .json_file import JsonObject, read_file
from .tokenizer import CONFIG_FILE, special_tokens

TEMPLATE_FILE = "chat_template.jinja"
MAX_TEMPLATE_BYTES = 1024 * 1024
MAX_RENDERED_CHARS = 8 * 1024 * 1024


class ChatTemplate:
    """A compiled template. Sandboxed: it sees the messages and nothing of this program."""

    def __init__(self, source: str, *, special_tokens: Mapping[str, str], where: str) -> None:
        """`special_tokens`: bos_token, eos_token and so on, which templates name.

        Raises ModelLoadError, beginning with `where`, for a syntax error.
        """
        if len(source.encode("utf-8", errors="surrogatepass")) > MAX_TEMPLATE_BYTES:
            raise ModelLoadError(f"{where}: larger than {MAX_TEMPLATE_BYTES} bytes")
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelLoadError(f"{where}: line {error.lineno}: {error.message}") from error
        except Exception as error:
            raise ModelLoadError(f"{where}: {error}") from error
        self._special_tokens = dict(special_tokens)

    @classmethod
    def load(cls, path: Path) -> "ChatTemplate | None":
        """chat_template.jinja of `path`, else the one in tokenizer_config.json, else None."""
        special = special_tokens(path)
        file = path / TEMPLATE_FILE
        if file.exists():
            data = read_file(file, MAX_TEMPLATE_BYTES)
            try:
                return cls(data.decode("utf-8"), special_tokens=special, where=str(file))
            except UnicodeDecodeError as error:
                raise ModelLoadError(f"{file}: not UTF-8 at byte {error.start}") from error
        if not (path / CONFIG_FILE).exists():
            return None
        config = JsonObject.read(path / CONFIG_FILE)
        source = _source(config)
        if source is None:
            return None
        return cls(source, special_tokens=special, where=f"{config.where}: chat_template")

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The prompt text. Raises TemplateError when the template fails or refuses the messages."""
        written: list[str] = []
        n_chars = 0
        try:
            for part in self._template.generate(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                # Templates ask "tools is not none", which an undefined name would pass.
                tools=None,
                documents=None,
                **self._special_tokens,
            ):
                n_chars += len(part)
                if n_chars > MAX_RENDERED_CHARS:
                    raise TemplateError(f"wrote more than {MAX_RENDERED_CHARS} characters")
                written.append(part)
        except Exception as error:
            raise TemplateError(f"chat template: {error}") from error
        return "".join(written)


def _source(config: JsonObject) -> str | None:
    """One template, or the one named "default" of several."""
    value = config.values.get("chat_template")
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        config.fail("chat_template", value, "a string or a list of named templates")
    for entry in value:
        named = JsonObject(entry if isinstance(entry, dict) else {}, config.where)
        if named.string("name") == "default":
            return named.string("template")
    return None


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationBlock(Extension):
    """{% generation %} marks the assistant's text for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 - the shape that jinja2 declares

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML; a prompt is no HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)
