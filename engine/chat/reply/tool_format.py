"""How a model writes tool calls, and how that is found in its chat template.

Owns the known styles and the texts by which a template shows one. A template that writes calls is
rendered with some; one that writes none is searched for known texts. Knows no stream and no
grammar.
"""

from typing import Literal, NamedTuple

from .call_shape import CallShape, Probe
from .json_call import SPACE
from .reasoning_format import after_thought
from .tagged_shape import FUNCTION_TAGS, TaggedShape
from .written import Marker, ReplyTokenizer, Written, divided, marker

CallStyle = Literal["hermes", "llama3", "mistral", "named", "tagged", "gemma", "harmony"]

# Texts of templates whose models call in this style, the most specific first.
_STYLES: tuple[tuple[str, CallStyle], ...] = (
    ("<function=", "tagged"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_tag|>", "llama3"),
    ('{"name": function name, "parameters"', "llama3"),
    ("<tool_call>", "hermes"),
)
# Of a template that describes this format to the model, but writes no calls: Granite 3.
_LIST_AFTER = ("<|tool_call|>", "followed by a JSON list")
# Texts of unknown styles that share the tags of a known one.
_OTHER_STYLES = ("<arg_key>",)
# Styles that cannot be read from the shape of a call, by a text in the call.
_STYLES_OF_CALLS: tuple[tuple[str, CallStyle], ...] = (
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call>call:", "gemma"),
)
# Harmony's tags, in the order of ToolFormat.inner.
HARMONY_TAGS = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    *("<|end|>", "<|call|>", "<|return|>"),
)


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

    hermes   <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    llama3   {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>
    mistral  [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]name[ARGS]{...}
    named    name and arguments with the texts around them that the template writes
    tagged   a tag per argument, such as <tool_call>name<arg_key>key</arg_key>...</tool_call>
    gemma    <|tool_call>call:name{key:<|"|>value<|"|>}<tool_call|>
    harmony  <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>
    """

    style: CallStyle
    open: Marker
    close: Marker | None = None
    inner: tuple[Marker, ...] = ()
    """The tags within one call: of Mistral [CALL_ID] and [ARGS]; of Gemma the quote; of Harmony
    HARMONY_TAGS.
    """
    is_list: bool = False
    """Whether Mistral's calls are a JSON list."""
    has_call_id: bool = False
    """Whether Mistral's calls hold an id."""
    in_template: bool = True
    """Whether the template describes tools to the model; if not, `describe_tools` must."""
    around: AroundCalls | None = None
    """For a format of objects or names that was read off the template."""
    tags: TaggedShape[Written] | None = None
    """For a format with a tag per argument."""
    arguments_key: str = "arguments"
    writes_calls: bool = True
    """Whether the template writes the calls of earlier turns; if not, they stand in the text."""
    is_unreadable: bool = False
    """Whether the template writes calls, but in a way that cannot be read back."""
    example: str = ""
    """A call as the template writes it, if it describes no tools: `describe_tools` shows it."""


def harmony(tokenizer: ReplyTokenizer) -> ToolFormat:
    tags = tuple(marker(text, tokenizer) for text in HARMONY_TAGS)
    return ToolFormat("harmony", tags[HARMONY_TAGS.index("<|channel|>")], inner=tags)


def named_in(source: str, tokenizer: ReplyTokenizer) -> ToolFormat:
    """The format whose texts stand in the source of a template."""
    if " ".join(_LIST_AFTER) in source:
        return _list_after(_LIST_AFTER[0], tokenizer)
    found = (style for text, style in _STYLES if text in source)
    style = None if any(text in source for text in _OTHER_STYLES) else next(found, None)
    return _known(style, source, tokenizer)


def shown_by(source: str, shown: Probe, tokenizer: ReplyTokenizer) -> ToolFormat:
    """The format of a template that wrote calls."""
    unknown = _known(None, source, tokenizer)
    if shown.reply is None:
        return unknown
    form = _read_off(source, shown, tokenizer)
    if shown.shows_tools:
        return form or unknown._replace(is_unreadable=True)
    if form is None:
        return unknown
    return form._replace(in_template=False, example=after_thought(shown.example))


def _read_off(source: str, shown: Probe, tokenizer: ReplyTokenizer) -> ToolFormat | None:
    """None if the calls cannot be read back."""
    assert shown.reply is not None
    found = next((style for text, style in _STYLES_OF_CALLS if text in shown.reply), None)
    if found is not None:
        return _known(found, source, tokenizer)
    if shown.tags is not None:
        opening = after_thought(shown.tags.opening)
        return _tagged(shown.tags._replace(opening=opening), tokenizer)
    if shown.shape is None:
        return None
    shape = shown.shape._replace(opening=after_thought(shown.shape.opening))
    return (_json if shape.kind == "json" else _named)(shape, tokenizer)


def _known(style: CallStyle | None, source: str, tokenizer: ReplyTokenizer) -> ToolFormat:
    if style == "mistral":
        return ToolFormat(
            style,
            marker("[TOOL_CALLS]", tokenizer),
            inner=(marker("[CALL_ID]", tokenizer), marker("[ARGS]", tokenizer)),
            is_list="[ARGS]" not in source,
            has_call_id="[CALL_ID]" in source,
        )
    if style == "llama3":
        python_tag = marker("<|python_tag|>", tokenizer)
        return ToolFormat(style, python_tag, arguments_key="parameters")
    if style == "gemma":
        opening, closing, quote = (
            marker(text, tokenizer) for text in ("<|tool_call>", "<tool_call|>", '<|"|>')
        )
        return ToolFormat(style, opening, closing, inner=(quote,))
    if style == "tagged":
        known = _tagged(FUNCTION_TAGS, tokenizer)
        assert known is not None
        return known
    return ToolFormat(
        "hermes",
        marker("<tool_call>", tokenizer),
        marker("</tool_call>", tokenizer),
        in_template=style is not None,
    )


def _list_after(tag: str, tokenizer: ReplyTokenizer) -> ToolFormat:
    """Calls that are a list of objects after a tag."""
    shape = CallShape("json", f"{tag}[", "]", ", ")
    around = _around(shape, tag, tokenizer)
    return ToolFormat("hermes", around.opening[0], around=around, writes_calls=False)


def _tagged(shape: TaggedShape[str], tokenizer: ReplyTokenizer) -> ToolFormat | None:
    """Calls with a tag per argument."""
    tags = shape.each(lambda text: divided(text, tokenizer))
    begins = divided(shape.opening.strip(SPACE) or shape.name_open.strip(SPACE), tokenizer)
    closing = divided(shape.closing.strip(SPACE), tokenizer)
    if not begins:
        return None  # any text that begins with a name would be a call
    return ToolFormat("tagged", begins[0], next(iter(closing), None), tags=tags)


def _json(shape: CallShape, tokenizer: ReplyTokenizer) -> ToolFormat | None:
    """Calls that are objects: after a tag, or bare like Llama's."""
    opening = shape.opening.strip(SPACE + "[")
    closing = shape.closing.strip(SPACE + "]")
    is_list = "[" in shape.opening[len(shape.opening.rstrip(SPACE + "[")) :]
    if opening in ("", "<|python_tag|>"):
        bare = _known("llama3", "", tokenizer)._replace(arguments_key=shape.arguments_key)
        return None if is_list or closing else bare
    if (opening, closing, is_list) == ("<tool_call>", "</tool_call>", False):
        return _known("hermes", "", tokenizer)
    tags = divided(opening, tokenizer), divided(closing, tokenizer)
    if len(tags[0]) != 1 or len(tags[1]) > 1:
        return None
    return ToolFormat(
        "hermes",
        tags[0][0],
        next(iter(tags[1]), None),
        around=_around(shape, opening, tokenizer),
        arguments_key=shape.arguments_key,
    )


def _named(shape: CallShape, tokenizer: ReplyTokenizer) -> ToolFormat | None:
    around = _around(shape, shape.opening.strip(SPACE), tokenizer)
    begins = around.opening or around.between
    if not begins or not (around.opening or shape.text_prefix.strip()):
        return None  # any text that begins with a name would be a call
    return ToolFormat("named", begins[0], around=around)


def _around(shape: CallShape, opening: str, tokenizer: ReplyTokenizer) -> AroundCalls:
    rest = shape.opening[shape.opening.find(opening) + len(opening) :]
    return AroundCalls(
        divided(opening, tokenizer),
        divided(rest if opening else "", tokenizer),
        divided(shape.middle, tokenizer),
        None if shape.between is None else divided(shape.between, tokenizer),
        divided(shape.closing, tokenizer),
        divided("" if opening else shape.text_prefix, tokenizer),
    )
