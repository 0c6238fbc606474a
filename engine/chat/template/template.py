"""The model's chat template: messages -> the text that the model was trained on.

Owns which values templates get and how much they may write; `sources.py` owns where they are found.
Knows no token ids: `prompt.py` encodes the rendered text.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from jinja2 import meta

from ...errors import ModelLoadError, TemplateError
from ...gguf.metadata import Metadata
from ...text.tokenizer_json import special_tokens
from .budget import Budget, BudgetContext, TemplateLimitError
from .sandbox import TemplateEnvironment
from .sources import (
    MAX_TEMPLATE_BYTES,
    TemplateSource,
    directory_source,
    file_source,
    metadata_source,
)

MAX_TEMPLATE_TOKENS = 20_000
"""Tokens of the template language; this many compile in less than two seconds."""
MAX_RENDERED_CHARS = 8 * 1024 * 1024
OWN_VARIABLES = frozenset(("messages", "tools", "documents", "add_generation_prompt"))
# Not variables but rendering options of other programs: a request that sets one is refused, because
# it would have no effect.
OPTIONS = frozenset(("chat_template", "continue_final_message", "tokenize"))

_MAX_REASON = 500


class ChatTemplate:
    """A compiled template in a sandbox: it sees the messages and nothing of this program."""

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str],
        where: str,
        tool_source: str | None = None,
    ) -> None:
        """`special_tokens`: bos_token, eos_token and so on, by name. `tool_source`: another
        template, for requests with tools.

        Raises ModelLoadError, beginning with `where`, for a syntax error.
        """
        self.source = source
        self.tool_source = source if tool_source is None else tool_source
        self.special_tokens = dict(special_tokens)
        self._environment = TemplateEnvironment()
        self._template = self._compiled(source, where)
        self._tool_template = (
            self._template if tool_source is None else self._compiled(tool_source, where)
        )

    @classmethod
    def load(cls, path: Path, file: Path | None = None) -> "ChatTemplate | None":
        """The template of a model directory, or the one in `file`; None if there is none.

        Raises ModelLoadError for one that cannot be read or does not parse.
        """
        own = None if file else directory_source(path)
        return cls._of(own, file, special_tokens(path))

    @classmethod
    def of_metadata(
        cls, metadata: Metadata, special_tokens: Mapping[str, str], file: Path | None = None
    ) -> "ChatTemplate | None":
        """`load` for a GGUF file. `special_tokens`: those of its tokenizer."""
        own = None if file else metadata_source(metadata)
        return cls._of(own, file, special_tokens)

    @classmethod
    def _of(
        cls, own: TemplateSource | None, file: Path | None, special_tokens: Mapping[str, str]
    ) -> "ChatTemplate | None":
        source = own if file is None else file_source(file)
        if source is None:
            return None
        try:
            return cls(
                source.text,
                tool_source=source.tool_text,
                special_tokens=special_tokens,
                where=source.where,
            )
        except ModelLoadError as error:
            if file is not None:
                raise
            raise ModelLoadError(
                f"{error}; --chat-template FILE (chat_template) uses the template in FILE instead"
            ) from error

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template reads: messages, tools and so on, and its own variables."""
        names: set[str] = set()
        for source in {self.source, self.tool_source}:
            names |= meta.find_undeclared_variables(self._environment.parse(source))
        return frozenset(names - self._environment.globals.keys())

    @cached_property
    def takes_argument_text(self) -> bool:
        """Whether the template writes the arguments of tool calls unchanged if they are text.

        Other templates write objects as JSON, and would put a text in quotes; or they write objects
        in a form of their own, and would put a text between their brackets.
        """
        arguments = '{"key": "value"}'
        call = {"id": "callcall1", "function": {"name": "probe", "arguments": arguments}}
        schema = {"type": "object", "properties": {}}
        tool = {"name": "probe", "description": "probe", "parameters": schema}
        for content in (None, ""):  # some templates fail on one, some on the other
            messages: list[dict[str, Any]] = [
                {"role": "user", "content": "probe"},
                {"role": "assistant", "content": content, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "callcall1", "name": "probe", "content": "probe"},
            ]
            try:
                text = self.render(messages, tools=[{"type": "function", "function": tool}])
            except TemplateError:
                continue
            return arguments in text and f"{{{arguments}}}" not in text
        return False

    @cached_property
    def takes_later_system(self) -> bool:
        """Whether the template shows a system message that follows a question. Others leave it out,
        refuse it, or take it for the first one.
        """
        first, later = "probe of a system text", "probe of a later one"
        question = {"role": "user", "content": "probe of a question"}
        messages = [
            {"role": "system", "content": first},
            question,
            {"role": "system", "content": later},
            {"role": "assistant", "content": "probe of an answer"},
            question,
        ]
        try:
            text = self.render(messages)
        except TemplateError:
            return False
        return first in text and later in text

    def default_system(self, variables: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The template's own system text, for conversations without one; empty if it has none.

        It is found in the place of the caller's system text.
        """
        question = {"role": "user", "content": "probe of a question"}
        text = "probe of a system text"
        try:
            without = self.render([question], variables=variables)
            given = self.render(
                [{"role": "system", "content": text}, question], variables=variables
            )
        except TemplateError:
            return ""
        before, found, after = given.partition(text)
        if not found or not (without.startswith(before) and without.endswith(after)):
            return ""
        return without[len(before) : max(len(before), len(without) - len(after))]

    @property
    def reserved(self) -> frozenset[str]:
        """Names that a caller may not set."""
        return (
            OWN_VARIABLES | OPTIONS | self.special_tokens.keys() | self._environment.globals.keys()
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The prompt text, from JSON values. `variables`: further ones that the template may read.

        Raises TemplateError if the template fails, refuses the messages, or exceeds what a
        rendering may use.
        """
        template = self._tool_template if tools else self._template
        try:
            context = template.new_context(
                {
                    **variables,
                    **self.special_tokens,
                    "messages": messages,
                    # Templates ask "tools is not none", which an undefined name would pass.
                    "tools": tools or None,
                    "documents": documents or None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
            assert isinstance(context, BudgetContext)
            context.budget = Budget()
            context.budget.check_length(context.budget.length_of(context.parent))
            return _written(template.root_render_func(context))
        except Exception as error:
            reason = " ".join((str(error) or type(error).__name__)[:_MAX_REASON].split())
            raise TemplateError(f"chat template: {reason}") from error

    def _compiled(self, source: str, where: str) -> jinja2.Template:
        if len(source.encode("utf-8", errors="surrogatepass")) > MAX_TEMPLATE_BYTES:
            raise ModelLoadError(f"{where}: larger than {MAX_TEMPLATE_BYTES} bytes")
        try:
            tokens = self._environment.lex(source)
            if next(islice(tokens, MAX_TEMPLATE_TOKENS, None), None) is not None:
                raise ModelLoadError(f"{where}: more than {MAX_TEMPLATE_TOKENS} tokens")
            return self._environment.compiled(self._environment.parse(source))
        except ModelLoadError:
            raise
        except jinja2.TemplateSyntaxError as error:
            raise ModelLoadError(f"{where}: line {error.lineno}: {error.message}") from error
        except Exception as error:
            raise ModelLoadError(f"{where}: {error}") from error


def _written(parts: Iterable[str]) -> str:
    written: list[str] = []
    n_characters = 0
    for part in parts:
        n_characters += len(part)
        if n_characters > MAX_RENDERED_CHARS:
            raise TemplateLimitError(f"wrote more than {MAX_RENDERED_CHARS} characters")
        written.append(part)
    return "".join(written)
