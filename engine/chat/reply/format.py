"""How a model marks reasoning and tool calls in its replies.

Owns the known formats and how the format of a model is found: from its chat template and its added
tokens, never from its name. A template that writes calls is rendered with some; one that writes
none is searched for known texts. Knows no stream and no grammar.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ...text.vocabulary import Vocabulary
from ..template.template import ChatTemplate
from .call_shape import CallShape, Probe, probe

CallStyle = Literal["hermes", "llama3", "mistral", "qwen3-coder", "named", "harmony"]
SPACE = " \t\r\n"

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
# Texts of templates whose models call in this style, the most specific first.
_STYLES: tuple[tuple[str, CallStyle], ...] = (
    ("<function=", "qwen3-coder"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3"),
    ('{"name": function name, "parameters"', "llama3"),
    ("<tool_call>", "hermes"),
)
# Texts of unknown styles that share the tags of a known one.
_OTHER_STYLES = ("<arg_key>",)
# Styles that cannot be read from the shape of a call, by a text in the call.
_STYLES_OF_CALLS: tuple[tuple[str, CallStyle], ...] = (
    ("<parameter=", "qwen3-coder"),
    ("[TOOL_CALLS]", "mistral"),
)
# Harmony's tags, in the order of ToolFormat.inner. Its channels are told by these texts as well.
HARMONY_TAGS = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    *("<|end|>", "<|call|>", "<|return|>"),
)
_HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "analysis", "commentary")
_MAY_BE_TOKENS = re.compile(r"<[^<>\s]{1,60}>|\[[A-Z_/]{1,60}\]")


class ReplyTokenizer(Vocabulary, Protocol):
    """The methods of a tokenizer that are used here."""

    def added_token_id(self, text: str) -> int | None: ...


class Marker(NamedTuple):
    """A text that is not content."""

    text: str
    token_id: int | None = None
    """The token that is the whole marker; None if it takes several tokens."""
    is_special: bool = False
    """If so, its text shows only where special tokens do, and it is recognised by its id."""
    is_control: bool = False
    """If so, only a grammar that names the token allows it."""


class ReasoningFormat(NamedTuple):
    open: Marker
    close: Marker


Written = tuple[Marker, ...]
"""A text, divided at tokens that are whole markers."""


class AroundCalls(NamedTuple):
    """The texts that a template writes around the parts of calls; see CallShape."""

    opening: Written
    rest_of_opening: Written
    """What follows the opening that marks a call, such as the bracket of a list."""
    middle: Written
    between: Written | None
    closing: Written
    text_prefix: Written


class ToolFormat(NamedTuple):
    """How calls are written.

    hermes       <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    llama3       {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>
    mistral      [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]name[ARGS]{...}
    named        name and arguments with the texts around them that the template writes
    qwen3-coder  <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
    harmony      <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
    """

    style: CallStyle
    open: Marker
    close: Marker | None = None
    inner: tuple[Marker, ...] = ()
    """The tags within one Mistral call, [CALL_ID] and [ARGS]; of Harmony, HARMONY_TAGS."""
    is_list: bool = False
    """Whether Mistral's calls are a JSON list."""
    in_template: bool = True
    """Whether the template describes tools to the model; if not, `describe_tools` must."""
    around: AroundCalls | None = None
    """For a format that was read off the template; None for one of those above."""
    arguments_key: str = "arguments"
    is_unreadable: bool = False
    """Whether the template writes calls, but in a way that cannot be read back."""


@dataclass(frozen=True)
class ReplyFormat:
    """How one model marks reasoning and tool calls."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat
    _tokenizer: ReplyTokenizer = field(repr=False)

    @classmethod
    def of(cls, template_source: str | None, tokenizer: ReplyTokenizer) -> "ReplyFormat":
        """`template_source`: of the chat template; None if the model has none."""
        source = template_source or ""
        if all(text in source for text in _HARMONY):
            return cls._harmony(tokenizer)
        return cls(_reasoning(source, tokenizer), _tools(source, tokenizer), tokenizer)

    @classmethod
    def of_template(
        cls, template: ChatTemplate, tokenizer: ReplyTokenizer, eos_token_ids: Sequence[int] = ()
    ) -> "ReplyFormat":
        """The format in which the template writes calls, found by rendering some."""
        if all(text in template.source for text in _HARMONY):
            return cls._harmony(tokenizer)
        ends = [
            tokenizer.token_bytes(token_id).decode(errors="replace") for token_id in eos_token_ids
        ]
        shown = probe(template, ends)
        if shown.reply is None:
            tools = _tools(template.tool_source, tokenizer)
        else:
            tools = _shown_tools(template.tool_source, shown.reply, shown, tokenizer)
        return cls(_reasoning(template.source, tokenizer), tools, tokenizer)

    @classmethod
    def _harmony(cls, tokenizer: ReplyTokenizer) -> "ReplyFormat":
        tags = {text: _marker(text, tokenizer) for text in HARMONY_TAGS}
        reasoning = ReasoningFormat(tags["<|channel|>"], tags["<|end|>"])
        tools = ToolFormat("harmony", tags["<|channel|>"], inner=tuple(tags.values()))
        return cls(reasoning, tools, tokenizer)

    def needs_reader(self, *, reads_tools: bool) -> bool:
        """Whether a reply can hold anything but content. If not, it needs no ReplyReader."""
        return reads_tools or self.reasoning is not None

    def opens_in_reasoning(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the reply to this prompt begins within the reasoning.

        It does if the turn that the prompt leaves open holds an opening tag without its end. A turn
        begins after the last control token. Without any, the prompt must end with the tag, because
        the text of a user may hold one.
        """
        if self.reasoning is None:
            return False
        if self.tools.style == "harmony":
            return self._opens_in_analysis(prompt_ids)
        opening, closing = self.reasoning
        turn, is_turn = self._open_turn(prompt_ids, (opening.token_id, closing.token_id))
        start = turn.rfind(opening.text)
        if start < 0 or start < turn.rfind(closing.text):
            return False
        return is_turn or not turn[start + len(opening.text) :].strip()

    def _open_turn(
        self, prompt_ids: Sequence[int], tags: tuple[int | None, ...]
    ) -> tuple[str, bool]:
        """The text after the last control token that is not a tag, and whether there is one."""
        start = len(prompt_ids)
        while start and not self._divides(prompt_ids[start - 1], tags):
            start -= 1
        data = b"".join(map(self._tokenizer.token_bytes, prompt_ids[start:]))
        return data.decode(errors="replace"), start > 0

    def _opens_in_analysis(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the last message of the prompt is in the channel of the reasoning, and open."""
        begins = self.tools.inner[HARMONY_TAGS.index("<|start|>")].token_id
        ids = list(prompt_ids)
        if begins in ids:
            ids = ids[len(ids) - 1 - ids[::-1].index(begins) :]
        data = b"".join(map(self._tokenizer.token_bytes, ids))
        message = data.decode(errors="replace").rpartition("<|start|>")[2]
        header, begun, text = message.partition("<|message|>")
        return bool(begun) and "<|channel|>analysis" in header and "<|end|>" not in text

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
    return _known(style, source, tokenizer)


def _known(style: CallStyle | None, source: str, tokenizer: ReplyTokenizer) -> ToolFormat:
    if style == "mistral":
        return ToolFormat(
            style,
            _marker("[TOOL_CALLS]", tokenizer),
            inner=(_marker("[CALL_ID]", tokenizer), _marker("[ARGS]", tokenizer)),
            is_list="[ARGS]" not in source,
        )
    if style == "llama3":
        python_tag = _marker("<|python_tag|>", tokenizer)
        return ToolFormat(style, python_tag, arguments_key="parameters")
    return ToolFormat(
        style or "hermes",
        _marker("<tool_call>", tokenizer),
        _marker("</tool_call>", tokenizer),
        in_template=style is not None,
    )


def _shown_tools(source: str, reply: str, shown: Probe, tokenizer: ReplyTokenizer) -> ToolFormat:
    """The format of a template that wrote the call in `reply`."""
    found = next((style for text, style in _STYLES_OF_CALLS if text in reply), None)
    if not shown.shows_tools:
        return _known(None, source, tokenizer)
    if found is not None:
        return _known(found, source, tokenizer)
    form = None
    if shown.shape is not None:
        shape = _without_thought(shown.shape)
        is_json = shape.kind == "json"
        form = (_json_format if is_json else _named_format)(shape, tokenizer)
    return form or _known(None, source, tokenizer)._replace(is_unreadable=True)


def _without_thought(shape: CallShape) -> CallShape:
    """Without the empty reasoning that some templates write before calls."""
    ends = [shape.opening.rfind(close) + len(close) for _, close in _REASONING_TAGS
            if close in shape.opening]  # fmt: skip
    return shape._replace(opening=shape.opening[max(ends, default=0) :])


def _json_format(shape: CallShape, tokenizer: ReplyTokenizer) -> ToolFormat | None:
    """Calls that are objects: after a tag, or bare like Llama's."""
    opening = shape.opening.strip(SPACE + "[")
    closing = shape.closing.strip(SPACE + "]")
    is_list = "[" in shape.opening[len(shape.opening.rstrip(SPACE + "[")) :]
    if opening in ("", "<|python_tag|>"):
        bare = _known("llama3", "", tokenizer)._replace(arguments_key=shape.arguments_key)
        return None if is_list or closing else bare
    if (opening, closing, is_list) == ("<tool_call>", "</tool_call>", False):
        return _known("hermes", "", tokenizer)
    tags = _written(opening, tokenizer), _written(closing, tokenizer)
    if len(tags[0]) != 1 or len(tags[1]) > 1:
        return None
    return ToolFormat(
        "hermes",
        tags[0][0],
        next(iter(tags[1]), None),
        around=_around(shape, opening, tokenizer),
        arguments_key=shape.arguments_key,
    )


def _named_format(shape: CallShape, tokenizer: ReplyTokenizer) -> ToolFormat | None:
    around = _around(shape, shape.opening.strip(SPACE), tokenizer)
    begins = around.opening or around.between
    if not begins or not (around.opening or shape.text_prefix.strip()):
        return None  # any text that begins with a name would be a call
    return ToolFormat("named", begins[0], around=around)


def _around(shape: CallShape, opening: str, tokenizer: ReplyTokenizer) -> AroundCalls:
    rest = shape.opening[shape.opening.find(opening) + len(opening) :]
    return AroundCalls(
        _written(opening, tokenizer),
        _written(rest if opening else "", tokenizer),
        _written(shape.middle, tokenizer),
        None if shape.between is None else _written(shape.between, tokenizer),
        _written(shape.closing, tokenizer),
        _written("" if opening else shape.text_prefix, tokenizer),
    )


def _written(text: str, tokenizer: ReplyTokenizer) -> Written:
    """Only special and control tokens become markers: all others may occur in a text."""
    parts: list[Marker] = []
    plain = 0
    for match in _MAY_BE_TOKENS.finditer(text):
        marker = _marker(match[0], tokenizer)
        if marker.is_special or marker.is_control or match[0] == text:
            parts += [Marker(text[plain : match.start()]), marker]
            plain = match.end()
    return tuple(part for part in (*parts, Marker(text[plain:])) if part.text)


def _marker(text: str, tokenizer: ReplyTokenizer) -> Marker:
    token_id = tokenizer.added_token_id(text)
    if token_id is None:
        return Marker(text)
    return Marker(text, token_id, tokenizer.is_special(token_id), tokenizer.is_control(token_id))
