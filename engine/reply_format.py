"""How a model marks what is not content in its replies: reasoning and calls of tools.

Owns the known formats and how a model's one is found: in the text of its chat template and in its
added tokens, never in its name. Knows no stream and no grammar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

CallStyle = Literal["hermes", "llama3", "mistral", "qwen3-coder"]

# In the order in which they are looked for.
_REASONING_TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
# What a template says when its model calls in this style, the telling ones first.
_STYLES: tuple[tuple[str, CallStyle], ...] = (
    ("<function=", "qwen3-coder"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3"),
    ('{"name": function name, "parameters"', "llama3"),
    ("<tool_call>", "hermes"),
)
# Tags like those of a known style around calls of another one.
_OTHER_STYLES = ("<arg_key>",)


class ReplyTokenizer(Protocol):
    """What this asks of a tokenizer."""

    def added_token_id(self, text: str) -> int | None: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...

    def is_control(self, token_id: int) -> bool: ...


class Marker(NamedTuple):
    """A text that is no content."""

    text: str
    token_id: int | None = None
    """Of the token that is the whole marker; None: it is written in several."""
    is_special: bool = False
    """Then its text is shown only where special tokens are, and it is known by its token."""
    is_control: bool = False
    """Then only a grammar that names the token allows it."""


class ReasoningFormat(NamedTuple):
    open: Marker
    close: Marker


class ToolFormat(NamedTuple):
    """How calls are written.

    hermes       <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    llama3       {"name": ..., "parameters": {...}}, perhaps with <|python_tag|> in front
    mistral      [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]name[ARGS]{...}
    qwen3-coder  <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
    """

    style: CallStyle
    open: Marker
    close: Marker | None = None
    inner: tuple[Marker, ...] = ()
    """Of one call of Mistral: [CALL_ID] and [ARGS]."""
    is_list: bool = False
    """Whether Mistral's calls are a JSON list."""
    in_template: bool = True
    """Whether the template tells the model about tools; if not, `describe_tools` must."""


@dataclass(frozen=True)
class ReplyFormat:
    """How one model writes."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat
    _tokenizer: ReplyTokenizer = field(repr=False)

    @classmethod
    def of(cls, template_source: str | None, tokenizer: ReplyTokenizer) -> "ReplyFormat":
        """`template_source`: of the chat template; None: the model has none."""
        source = template_source or ""
        return cls(_reasoning(source, tokenizer), _tools(source, tokenizer), tokenizer)

    def needs_reader(self, *, reads_tools: bool) -> bool:
        """Whether a reply can hold anything but content; if not, it needs no ReplyReader."""
        return reads_tools or self.reasoning is not None

    def opens_in_reasoning(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the reply to this prompt begins within the reasoning.

        So it is when the turn that the prompt leaves open holds an opening tag without its end. A
        turn begins behind the last control token; without any, only a prompt that ends with the tag
        counts, for the tag may stand in what a user says.
        """
        if self.reasoning is None:
            return False
        opening, closing = self.reasoning
        turn, is_turn = self._open_turn(prompt_ids, (opening.token_id, closing.token_id))
        start = turn.rfind(opening.text)
        if start < 0 or start < turn.rfind(closing.text):
            return False
        return is_turn or not turn[start + len(opening.text) :].strip()

    def _open_turn(
        self, prompt_ids: Sequence[int], tags: tuple[int | None, ...]
    ) -> tuple[str, bool]:
        """The text behind the last control token that is no tag, and whether there is one."""
        start = len(prompt_ids)
        while start and not self._divides(prompt_ids[start - 1], tags):
            start -= 1
        data = b"".join(map(self._tokenizer.token_bytes, prompt_ids[start:]))
        return data.decode(errors="replace"), start > 0

    def _divides(self, token_id: int, tags: tuple[int | None, ...]) -> bool:
        return token_id not in tags and self._tokenizer.is_control(token_id)


def _reasoning(source: str, tokenizer: ReplyTokenizer) -> ReasoningFormat | None:
    """The tags that the template names, else those that are tokens."""
    known = [
        ReasoningFormat(_marker(opening, tokenizer), _marker(closing, tokenizer))
        for opening, closing in _REASONING_TAGS
    ]
    named = [tags for tags in known if tags.close.text in source]
    added = [tags for tags in known if all(marker.token_id is not None for marker in tags)]
    return next(iter((*named, *added)), None)


def _tools(source: str, tokenizer: ReplyTokenizer) -> ToolFormat:
    found = (style for text, style in _STYLES if text in source)
    style = None if any(text in source for text in _OTHER_STYLES) else next(found, None)
    if style == "mistral":
        return ToolFormat(
            style,
            _marker("[TOOL_CALLS]", tokenizer),
            inner=(_marker("[CALL_ID]", tokenizer), _marker("[ARGS]", tokenizer)),
            is_list="[ARGS]" not in source,
        )
    if style == "llama3":
        return ToolFormat(style, _marker("<|python_tag|>", tokenizer))
    return ToolFormat(
        style or "hermes",
        _marker("<tool_call>", tokenizer),
        _marker("</tool_call>", tokenizer),
        in_template=style is not None,
    )


def _marker(text: str, tokenizer: ReplyTokenizer) -> Marker:
    token_id = tokenizer.added_token_id(text)
    if token_id is None:
        return Marker(text)
    return Marker(text, token_id, tokenizer.is_special(token_id), tokenizer.is_control(token_id))
